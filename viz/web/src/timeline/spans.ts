// Layers on the tracks: consecutive operators of one layer, or of one of several equal ones, as one
// slice. They are numbered behind the slices of the trace.

import type { TimelineGroup } from "../data";
import type { TimelineModel } from "./model";

/** What can be shown of layers: the name of the choice, and the kinds of groups in it. */
export const LAYERS: Record<string, string[]> = {
  blocks: ["repeat", "block"],
  layers: ["repeat", "block", "layer"],
};

export class Spans {
  readonly start: number[] = [];
  readonly stop: number[] = [];
  readonly track: number[] = [];
  readonly step: number[] = [];
  readonly role: number[] = [];
  readonly group: number[] = [];
  readonly count: number[] = []; // operators
  /** By track, a row for every level, outermost first. */
  readonly rows: Int32Array[][];
  /** By slice, the innermost span around it; -1 for none. */
  readonly around: Int32Array;
  readonly kinds: Set<string>;
  private readonly chains = new Map<number, number[]>();
  private readonly groupOf = new Map<number, number>();

  constructor(
    private readonly model: TimelineModel,
    private readonly groups: TimelineGroup[],
    kinds: string[],
  ) {
    this.kinds = new Set(kinds);
    groups.forEach(({ nodes }, group) => {
      for (const node of nodes) this.groupOf.set(node, group);
    });
    this.around = new Int32Array(model.total).fill(-1);
    const rows: number[][][] = model.data.tracks.map(() => []);
    let open: number[] = []; // spans by level
    let [track, level, inside] = [-1, -1, -1];
    for (let slice = 0; slice < model.total; slice++) {
      if (model.track(slice) !== track) [track, level, inside] = [model.track(slice), -1, -1];
      const depth = model.depth(slice);
      if (inside >= 0 && depth > level) {
        this.around[slice] = this.around[inside] as number; // part of an operator
        continue;
      }
      [level, inside] = [-1, -1];
      const node = model.node(slice);
      const chain = node === null ? [] : this.chain(node);
      if (depth === 0 && model.hasParts(slice)) {
        open = [];
        continue;
      }
      if (node !== null) [level, inside] = [depth, slice];
      if (!chain.length) continue; // what is in no layer interrupts none
      let same = 0;
      while (same < chain.length && this.goesOn(open[same], chain[same] as number, slice)) same++;
      open.length = same;
      for (let at = same; at < chain.length; at++) {
        const made = this.begin(slice, chain[at] as number);
        open.push(made);
        const levels = (rows[track] ??= []);
        (levels[at] ??= []).push(made);
      }
      for (const span of open) this.extend(span, slice);
      this.around[slice] = (open[open.length - 1] as number) ?? -1;
    }
    this.rows = rows.map((levels) => levels.map((found) => Int32Array.from(found ?? [])));
  }

  get total(): number {
    return this.start.length;
  }

  /** Operators of the graph in the group of a span, those of groups inside included. */
  nodes(span: number): number[] {
    const wanted = this.group[span - this.model.total] as number;
    const inside = (group: number): boolean =>
      group >= 0 && (group === wanted || inside(this.groups[group]?.parent ?? -1));
    return [...this.groupOf].filter(([, group]) => inside(group)).map(([node]) => node);
  }

  /** Whether the operators in the innermost span around a slice are seen. */
  isOpen(slice: number, opened: Set<string>): boolean {
    const span = this.around[slice] as number;
    if (span < 0) return true;
    let group = this.group[span - this.model.total] as number;
    for (; group >= 0; group = this.groups[group]?.parent ?? -1)
      if (opened.has(this.name(group))) return true;
    return false;
  }

  /** What tells a layer from others, on all devices, forward and backward. */
  key(span: number): string {
    return this.name(this.group[span - this.model.total] as number);
  }

  private name(group: number): string {
    return this.groups[group]?.label ?? "";
  }

  /** Groups of the chosen kinds around an operator, outermost first. */
  private chain(node: number): number[] {
    const innermost = this.groupOf.get(node) ?? -1;
    const known = this.chains.get(innermost);
    if (known) return known;
    const found: number[] = [];
    for (let group = innermost; group >= 0; group = this.groups[group]?.parent ?? -1)
      if (this.kinds.has(this.groups[group]?.kind ?? "")) found.unshift(group);
    this.chains.set(innermost, found);
    return found;
  }

  private goesOn(span: number | undefined, group: number, slice: number): boolean {
    if (span === undefined) return false;
    const at = span - this.model.total;
    return (
      this.name(this.group[at] as number) === this.name(group) &&
      this.track[at] === this.model.track(slice) &&
      this.role[at] === this.model.data.slices.role[slice] &&
      this.step[at] === this.model.step(slice)
    );
  }

  private begin(slice: number, group: number): number {
    const { model } = this;
    this.start.push(model.start(slice));
    this.stop.push(model.stop(slice));
    this.track.push(model.track(slice));
    this.step.push(model.step(slice));
    this.role.push(model.data.slices.role[slice] as number);
    this.group.push(group);
    return model.total + this.count.push(0) - 1;
  }

  private extend(span: number, slice: number): void {
    const at = span - this.model.total;
    this.stop[at] = Math.max(this.stop[at] as number, this.model.stop(slice));
    this.count[at] = (this.count[at] as number) + 1;
  }
}
