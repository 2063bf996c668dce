// Which tracks are seen, in which order and how high: pinned, hidden, collapsed, empty ones.

import type { TimelineModel } from "./model";

export const ROW = 22;
const THIN = 12; // a collapsed track
const HEAD = 24;
const IDLE = 20; // the line that stands for empty tracks
const COUNTER = 46;
const GAP = 6;

export const ORDERS: [string, string][] = [
  ["device", "device"],
  ["thread", "thread"],
  ["busy", "busiest first"],
];

/** What somebody chose, by the keys of bars ("t3" is a track, "c0" a counter) and names of groups. */
export interface Choices {
  order: string;
  apart: boolean; // forward and backward in rows of their own
  layers: string; // what of them is shown, see LAYERS; else operators alone
  hidden: Set<string>;
  pinned: Set<string>;
  thin: Set<string>;
  open: Set<string>; // groups whose empty tracks are seen
  opened: Set<string>; // layers whose operators are seen
}

/** A track or a counter, with its place. */
export interface Bar {
  key: string;
  name: string;
  group: string;
  track: number; // -1: a counter
  counter: number;
  thin: boolean;
  pinned: boolean;
  y: number; // from the top of the pinned ones, or of what scrolls
  height: number;
  rows: Row[];
}

export interface Row {
  slices: Int32Array; // by start
  bar: Bar;
  y: number;
  height: number;
}

export interface Heading {
  group: string;
  y: number;
  pinned: boolean;
  bars: string[];
  thin: boolean; // all of them
  idle: string[]; // empty tracks, if this is the line for them
}

/** The bars in their places, for what was chosen and the steps in view. */
export class Tracks {
  readonly bars: Bar[] = [];
  readonly headings: Heading[] = [];
  readonly rows: Row[] = [];
  pinnedHeight = 0;
  height = 0;
  private readonly byTrack = new Map<number, Bar>();

  constructor(
    private readonly model: TimelineModel,
    readonly choices: Choices,
    private readonly levels: Int32Array[][], // by track: its rows; none where it is empty
  ) {
    const all = this.ordered();
    const pinned = all.filter((bar) => bar.pinned);
    if (pinned.length) {
      this.heading("pinned", 4, true, pinned);
      this.pinnedHeight = this.place(pinned, 4 + HEAD) + 2;
    }
    const groups = new Map<string, Bar[]>();
    for (const bar of all)
      if (!bar.pinned) groups.set(bar.group, [...(groups.get(bar.group) ?? []), bar]);
    let y = 4;
    for (const [group, bars] of groups) y = this.group(group, bars, y);
    this.height = y + 8;
  }

  /** The row in which a slice lies, null if its track is not seen. */
  rowOf(slice: number): Row | null {
    const bar = this.byTrack.get(this.model.track(slice));
    if (!bar || bar.thin) return bar?.rows[0] ?? null;
    const span = this.model.spans?.around[slice] ?? -1; // of an operator that is folded
    const find = (wanted: number): Row | undefined =>
      bar.rows.find(({ slices }) => has(slices, wanted));
    return find(slice) ?? (span < 0 ? undefined : find(span)) ?? bar.rows[0] ?? null;
  }

  private group(group: string, bars: Bar[], y: number): number {
    this.heading(group, y, false, bars);
    const open = this.choices.open.has(group);
    const idle = open ? [] : bars.filter((bar) => !(this.levels[bar.track]?.length ?? 1));
    const below = this.place(
      bars.filter((bar) => !idle.includes(bar)),
      y + HEAD,
    );
    if (!idle.length) return below;
    const keys = idle.map((bar) => bar.key);
    const names = idle.map((bar) => bar.name);
    this.headings.push({ group, y: below, pinned: false, bars: keys, thin: false, idle: names });
    return below + IDLE + GAP;
  }

  private heading(group: string, y: number, pinned: boolean, bars: Bar[]): void {
    const thin = bars.every((bar) => bar.thin);
    this.headings.push({ group, y, pinned, bars: bars.map((bar) => bar.key), thin, idle: [] });
  }

  private place(bars: Bar[], y: number): number {
    for (const bar of bars) {
      bar.y = y;
      if (bar.track >= 0) this.byTrack.set(bar.track, bar);
      const levels = (this.levels[bar.track] ?? []).slice(0, bar.thin ? 1 : undefined);
      const height = bar.thin ? THIN : ROW;
      bar.rows = levels.map((slices, at) => ({ slices, bar, y: y + at * height, height }));
      bar.height =
        bar.track < 0 ? (bar.thin ? THIN : COUNTER) : Math.max(1, levels.length) * height;
      this.rows.push(...bar.rows);
      this.bars.push(bar);
      y += bar.height + GAP;
    }
    return y;
  }

  /** All that are not hidden, those of a group one after another. */
  private ordered(): Bar[] {
    const { order, hidden, pinned, thin } = this.choices;
    const byThread = order === "thread";
    const bar = (key: string, group: string, name: string): Omit<Bar, "track" | "counter"> => {
      const place = { thin: thin.has(key), pinned: pinned.has(key), y: 0, height: 0, rows: [] };
      return pinned.has(key)
        ? { key, group, name: `${group} · ${name}`, ...place }
        : { key, group, name, ...place };
    };
    const tracks = this.model.tracks.map((track, number) => {
      const [group, name] = byThread ? [track.name, track.group] : [track.group, track.name];
      return { ...bar(`t${number}`, group, name), track: number, counter: -1 };
    });
    const counters = this.model.data.counters.map((counter, number) => {
      const name = counter.device === null ? counter.name : `device ${counter.device}`;
      return { ...bar(`c${number}`, counter.name, name), track: -1, counter: number };
    });
    return [...this.sorted(tracks), ...counters].filter(({ key }) => !hidden.has(key));
  }

  private sorted(bars: Bar[]): Bar[] {
    const groups = new Map<string, Bar[]>();
    for (const bar of bars) groups.set(bar.group, [...(groups.get(bar.group) ?? []), bar]);
    if (this.choices.order !== "busy") return [...groups.values()].flat();
    const busy = (bar: Bar): number => this.model.tracks[bar.track]?.busy ?? 0;
    const most = (group: Bar[]): number => Math.max(...group.map(busy));
    return [...groups.values()]
      .sort((a, b) => most(b) - most(a))
      .flatMap((group) => group.sort((a, b) => busy(b) - busy(a)));
  }
}

/** Whether a slice is among some, which are numbered in order of their start. */
function has(slices: Int32Array, slice: number): boolean {
  let [low, high] = [0, slices.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((slices[middle] as number) < slice) low = middle + 1;
    else high = middle;
  }
  return slices[low] === slice;
}
