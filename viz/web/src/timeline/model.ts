// The slices of a timeline, by track and depth, so that those in view are found at once.

import type { TimelineData } from "../data";
import { moment } from "../format";
import { LAYERS, Spans } from "./spans";

const LEGIBLE = 4; // pixels of an operator

export interface Track {
  name: string;
  group: string;
  device: number | null;
  levels: Int32Array[]; // slices by depth, each in order of their start
  from: number; // its slices are numbered one after another
  to: number;
  steps: Set<number>; // in which it has a slice
  busy: number; // nanoseconds
}

export class TimelineModel {
  readonly tracks: Track[] = [];
  readonly total: number;
  readonly most: number[]; // of every counter
  readonly critical: Set<number>;
  readonly steps: { number: number; from: number; to: number }[] = [];
  readonly byNode = new Map<number, number[]>();
  /** Layers that are shown as slices, numbered behind those of the trace. */
  spans: Spans | null = null;
  private readonly known = new Map<string, Spans>();
  private readonly halves = new Map<number, Int32Array[]>();
  private readonly flowsOf = new Map<number, [number, number][]>();

  constructor(readonly data: TimelineData) {
    const { track, depth, node } = data.slices;
    this.total = track.length;
    this.critical = new Set(data.critical);
    const lists: number[][][] = data.tracks.map(() => []);
    for (let slice = 0; slice < this.total; slice++) {
      const levels = lists[track[slice] as number] as number[][];
      const level = depth[slice] as number;
      while (levels.length <= level) levels.push([]);
      levels[level]?.push(slice);
      const id = node[slice];
      if (id !== null && id !== undefined) {
        const found = this.byNode.get(id);
        if (found) found.push(slice);
        else this.byNode.set(id, [slice]);
      }
    }
    this.most = data.counters.map(({ values }) => values.reduce((a, b) => Math.max(a, b), 0));
    this.findSteps();
    lists.forEach((levels, number) => this.addTrack(levels, number));
    for (const flow of data.flows) {
      for (const end of flow) {
        const found = this.flowsOf.get(end);
        if (found) found.push(flow);
        else this.flowsOf.set(end, [flow]);
      }
    }
  }

  /** What can be shown of layers, apart from operators. */
  get layers(): string[] {
    const kinds = new Set(this.data.groups?.map(({ kind }) => kind));
    const found = kinds.has("block") ? ["blocks"] : [];
    return kinds.has("layer") ? [...found, "layers"] : found;
  }

  /** Show layers, or operators alone. */
  show(layers: string): void {
    const kinds = LAYERS[layers];
    const groups = this.data.groups;
    if (!kinds || !groups) {
      this.spans = null;
      return;
    }
    let spans = this.known.get(layers);
    if (!spans) this.known.set(layers, (spans = new Spans(this, groups, kinds)));
    this.spans = spans;
  }

  /** A slice of the trace; of a span, which is none, the number among the spans. */
  private span(slice: number): number {
    return slice - this.total;
  }

  /** Whether there is such a slice, or span of the layers that are shown. */
  has(slice: number): boolean {
    return slice >= 0 && slice < this.total + (this.spans?.total ?? 0);
  }

  /** Whether half of the operators in equal layers can be told apart in a span of time. */
  legible(from: number, to: number, pixels: number): boolean {
    if (!this.layers.includes("blocks")) return true;
    this.show("blocks");
    const widths: number[] = [];
    for (let slice = 0; slice < this.total; slice++)
      if (
        this.start(slice) < to &&
        this.stop(slice) > from &&
        (this.spans?.around[slice] ?? -1) >= 0
      )
        widths.push((this.duration(slice) / (to - from)) * pixels);
    widths.sort((a, b) => a - b);
    return !widths.length || (widths[widths.length >> 1] as number) >= LEGIBLE;
  }

  isSpan(slice: number): boolean {
    return slice >= this.total;
  }

  start(slice: number): number {
    return (this.data.slices.start[slice] ?? this.spans?.start[this.span(slice)]) as number;
  }

  /** When a slice starts, in words that tell it from its neighbours. */
  when(slice: number): string {
    return moment(this.start(slice), Math.max(1, this.duration(slice) / 2));
  }

  stop(slice: number): number {
    return this.start(slice) + this.duration(slice);
  }

  duration(slice: number): number {
    const own = this.data.slices.duration[slice];
    return own ?? (this.spans?.stop[this.span(slice)] as number) - this.start(slice);
  }

  name(slice: number): string {
    if (this.isSpan(slice)) return this.spans?.key(slice) ?? "";
    return this.data.names[this.data.slices.name[slice] as number] ?? "";
  }

  role(slice: number): string {
    const role = this.data.slices.role[slice] ?? this.spans?.role[this.span(slice)];
    return this.data.roles[role as number] ?? "";
  }

  node(slice: number): number | null {
    return this.data.slices.node[slice] ?? null;
  }

  step(slice: number): number {
    return (this.data.slices.step[slice] ?? this.spans?.step[this.span(slice)]) as number;
  }

  track(slice: number): number {
    return (this.data.slices.track[slice] ?? this.spans?.track[this.span(slice)]) as number;
  }

  depth(slice: number): number {
    return this.data.slices.depth[slice] as number;
  }

  /** Whether something is part of a slice; that follows it. */
  hasParts(slice: number): boolean {
    const { track, depth } = this.data.slices;
    return track[slice + 1] === track[slice] && (depth[slice + 1] ?? 0) > (depth[slice] as number);
  }

  trackOf(slice: number): Track {
    return this.tracks[this.track(slice)] as Track;
  }

  /** The rows of tasks that have operators. */
  frames(levels: Int32Array[]): Int32Array[] {
    const first = levels[0];
    return first?.some((slice) => this.hasParts(slice)) ? [first] : [];
  }

  /** The levels of a track with rows of their own for what is backward, below the others. */
  apart(track: number): Int32Array[] {
    const known = this.halves.get(track);
    if (known) return known;
    const { levels } = this.tracks[track] as Track;
    const back = (slice: number): boolean => this.role(slice) === "backward";
    const frames = this.frames(levels);
    const rest = levels.slice(frames.length);
    const front = rest.map((slices) => slices.filter((slice) => !back(slice)));
    const behind = rest.map((slices) => slices.filter(back));
    const found = [...frames, ...[...front, ...behind].filter((slices) => slices.length)];
    this.halves.set(track, found);
    return found;
  }

  /** Slices of a track that touch a span of time, each before its parts. */
  *within(track: number, from: number, to: number): Generator<number> {
    const { levels, to: end } = this.tracks[track] as Track;
    const outer = levels[0] ?? new Int32Array();
    const first = outer[this.between(outer, from, to)[0]];
    if (first === undefined) return;
    for (let slice = first; slice < end && this.start(slice) <= to; slice++)
      if (this.stop(slice) >= from) yield slice;
  }

  flows(slice: number): [number, number][] {
    return this.flowsOf.get(slice) ?? [];
  }

  /** Position of the first slice of a row behind a position that ends at a time or later. */
  reaching(slices: Int32Array, behind: number, time: number): number {
    let stride = 1;
    let low = behind + 1;
    while (low + stride < slices.length && this.stop(slices[low + stride] as number) < time) {
      low += stride;
      stride *= 2;
    }
    let high = Math.min(slices.length, low + stride);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stop(slices[middle] as number) < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Slices of a row, by start, that touch a span of time, as positions in the row. */
  between(slices: Int32Array, from: number, to: number): [number, number] {
    const search = (test: (slice: number) => boolean): number => {
      let [low, high] = [0, slices.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (test(slices[middle] as number)) low = middle + 1;
        else high = middle;
      }
      return low;
    };
    return [search((slice) => this.stop(slice) < from), search((slice) => this.start(slice) <= to)];
  }

  /** The slice of a row at a time, -1 for none; `slack` widens slices thinner than a pixel. */
  at(slices: Int32Array, time: number, slack: number): number {
    const [first, last] = this.between(slices, time - slack, time + slack);
    let [best, distance] = [-1, slack + 1];
    for (let k = first; k < last; k++) {
      const slice = slices[k] as number;
      const away = Math.max(this.start(slice) - time, time - this.stop(slice), 0);
      if (away < distance) [best, distance] = [slice, away];
    }
    return best;
  }

  private findSteps(): void {
    const found = new Map<number, { number: number; from: number; to: number }>();
    for (let slice = 0; slice < this.total; slice++) {
      const number = this.step(slice);
      const [from, to] = [this.start(slice), this.stop(slice)];
      const step = found.get(number);
      if (!step) found.set(number, { number, from, to });
      else [step.from, step.to] = [Math.min(step.from, from), Math.max(step.to, to)];
    }
    this.steps.push(...[...found.values()].sort((a, b) => a.from - b.from));
  }

  /** What the timeline opens at: the step of which all figures are. */
  typicalStep(): { number: number; from: number; to: number } | null {
    return this.steps.find((step) => step.number === this.data.typical) ?? null;
  }

  private addTrack(levels: number[][], number: number): void {
    const data = this.data.tracks[number];
    if (!data) return;
    const outer = levels[0] ?? [];
    let [to, busy] = [0, 0];
    const steps = new Set<number>();
    for (const slices of levels) to = Math.max(to, (slices.at(-1) ?? -1) + 1);
    for (const slice of outer) {
      busy += this.duration(slice);
      steps.add(this.step(slice));
    }
    this.tracks.push({
      ...data,
      levels: levels.map((slices) => Int32Array.from(slices)),
      from: outer[0] ?? 0,
      to,
      steps,
      busy,
    });
  }
}
