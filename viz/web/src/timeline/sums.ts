// What happened in a span of time on some tracks: how often, and how long.

import type { TimelineModel } from "./model";

/** A span of time on some tracks; null for all that are seen. */
export interface Area {
  from: number;
  to: number;
  tracks: number[];
}

export interface Sum {
  name: string;
  role: string;
  count: number;
  time: number; // nanoseconds in the area in which nothing ran that is part of it
}

export interface Sums {
  steps: number[];
  slices: number;
  busy: number; // nanoseconds in which a track had something, added over the tracks
  roles: Sum[];
  names: Sum[];
}

/** What tasks do beside their operators. */
export const BETWEEN = "between operators";

export function sumsOf(model: TimelineModel, { from, to, tracks }: Area): Sums {
  const roles = new Map<string, Sum>();
  const names = new Map<string, Sum>();
  const steps = new Set<number>();
  let [busy, slices] = [0, 0];
  const add = (found: Map<string, Sum>, key: string, name: string, role: string): Sum => {
    let sum = found.get(key);
    if (!sum) found.set(key, (sum = { name, role, count: 0, time: 0 }));
    return sum;
  };
  for (const track of tracks) {
    const around: [Sum, Sum][] = []; // by depth, of what is open
    for (const slice of model.within(track, from, to)) {
      const time = Math.min(to, model.stop(slice)) - Math.max(from, model.start(slice));
      if (time < 0 || (time === 0 && model.duration(slice) > 0)) continue;
      const depth = model.depth(slice);
      const frame = depth === 0 && model.hasParts(slice);
      const role = frame ? BETWEEN : model.role(slice);
      const name = frame ? BETWEEN : model.name(slice);
      const sums: [Sum, Sum] = [
        add(roles, role, role, role),
        add(names, `${role}/${name}`, name, role),
      ];
      for (const sum of sums) {
        sum.count += 1;
        sum.time += time;
      }
      for (const sum of depth ? (around[depth - 1] ?? []) : []) sum.time -= time;
      around[depth] = sums;
      steps.add(model.step(slice));
      slices += 1;
      if (depth === 0) busy += time;
    }
  }
  const longest = (found: Map<string, Sum>): Sum[] =>
    [...found.values()].sort((a, b) => b.time - a.time || b.count - a.count);
  return {
    steps: [...steps].sort((a, b) => a - b),
    slices,
    busy,
    roles: longest(roles),
    names: longest(names),
  };
}
