// The slices of a timeline, by track and depth, so that those in view are found at once.

import type { TimelineData } from "../data";
import { moment } from "../format";

export interface Row {
  track: number;
  depth: number;
  slices: Int32Array; // by start
}

export interface Track {
  name: string;
  group: string;
  device: number | null;
  depths: number;
  first: number; // row
}

export class TimelineModel {
  readonly rows: Row[] = [];
  readonly tracks: Track[] = [];
  readonly total: number;
  readonly rowOf: Int32Array;
  readonly critical: Set<number>;
  readonly steps: { number: number; from: number; to: number }[] = [];
  readonly byNode = new Map<number, number[]>();
  private readonly flowsOf = new Map<number, [number, number][]>();

  constructor(readonly data: TimelineData) {
    const { track, depth, node } = data.slices;
    this.total = track.length;
    this.rowOf = new Int32Array(this.total);
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

  start(slice: number): number {
    return this.data.slices.start[slice] as number;
  }

  /** When a slice starts, in words that tell it from its neighbours. */
  when(slice: number): string {
    return moment(this.start(slice), Math.max(1, this.duration(slice) / 2));
  }

  stop(slice: number): number {
    return this.start(slice) + this.duration(slice);
  }

  duration(slice: number): number {
    return this.data.slices.duration[slice] as number;
  }

  name(slice: number): string {
    return this.data.names[this.data.slices.name[slice] as number] ?? "";
  }

  role(slice: number): string {
    return this.data.roles[this.data.slices.role[slice] as number] ?? "";
  }

  node(slice: number): number | null {
    return this.data.slices.node[slice] ?? null;
  }

  step(slice: number): number {
    return this.data.slices.step[slice] as number;
  }

  trackOf(slice: number): Track {
    return this.tracks[this.data.slices.track[slice] as number] as Track;
  }

  flows(slice: number): [number, number][] {
    return this.flowsOf.get(slice) ?? [];
  }

  /** Slices of a row that touch a span of time, as positions in the row. */
  between(row: Row, from: number, to: number): [number, number] {
    const { slices } = row;
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
  at(row: Row, time: number, slack: number): number {
    const [first, last] = this.between(row, time - slack, time + slack);
    let [best, distance] = [-1, slack + 1];
    for (let k = first; k < last; k++) {
      const slice = row.slices[k] as number;
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
    this.tracks.push({ ...data, depths: Math.max(1, levels.length), first: this.rows.length });
    const filled = levels.length ? levels : [[]];
    filled.forEach((slices, depth) => {
      for (const slice of slices) this.rowOf[slice] = this.rows.length;
      this.rows.push({ track: number, depth, slices: Int32Array.from(slices) });
    });
  }
}
