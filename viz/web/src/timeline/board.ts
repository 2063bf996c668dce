// The tracks as somebody arranged them, and the area that was selected.

import type { State } from "../bus";
import { figures, numbers, ranges } from "../link";
import type { TimeWindow } from "../window";
import type { TimelineModel } from "./model";
import type { Area } from "./sums";
import { type Bar, type Choices, Tracks } from "./tracks";

const LISTS = ["hidden", "pinned", "thin", "open", "opened"] as const;
type List = (typeof LISTS)[number];

export class Board {
  readonly choices: Choices = {
    order: "device",
    apart: false,
    layers: "",
    hidden: new Set(),
    pinned: new Set(),
    thin: new Set(),
    open: new Set(),
    opened: new Set(),
  };
  area: Area | null = null;
  private made: Tracks | null = null;
  private used = "";
  private readonly folded = new Map<number, Int32Array[]>(); // by track, its rows with layers

  constructor(
    private readonly model: TimelineModel,
    private readonly window: TimeWindow,
  ) {}

  /** The tracks in their places; the same until something else was chosen or other steps are seen. */
  get tracks(): Tracks {
    const levels = this.levels();
    const used = levels.map((rows) => rows.map((slices) => slices[0]).join("+")).join();
    if (!this.made || used !== this.used) {
      this.used = used;
      this.made = new Tracks(this.model, this.choices, levels);
    }
    return this.made;
  }

  /** Numbers of the steps in view. */
  seen(): number[] {
    const { from, to } = this.window;
    return this.model.steps
      .filter((step) => step.to > from && step.from < to)
      .map((step) => step.number);
  }

  set(list: List, keys: string[], on: boolean): void {
    for (const key of keys)
      if (on) this.choices[list].add(key);
      else this.choices[list].delete(key);
    this.renew();
  }

  toggle(list: List, key: string): void {
    this.set(list, [key], !this.choices[list].has(key));
  }

  showAll(): void {
    this.set("hidden", [...this.choices.hidden], false);
  }

  arrange(chosen: Partial<Pick<Choices, "order" | "apart" | "layers">>): void {
    Object.assign(this.choices, chosen);
    this.model.show(this.choices.layers);
    this.renew();
  }

  private renew(): void {
    this.made = null;
    this.folded.clear();
  }

  /** Whether a slice can be seen, as far as layers are open. */
  isSeen(slice: number): boolean {
    const { spans } = this.model;
    return !spans || this.model.isSpan(slice) || spans.isOpen(slice, this.choices.opened);
  }

  /** Whether the operators of a span are seen. */
  isOpen(span: number): boolean {
    return this.choices.opened.has(this.model.spans?.key(span) ?? "");
  }

  /** Fold the operators of a span, in all steps, or let them be seen. */
  fold(span: number, on: boolean): void {
    const { spans } = this.model;
    if (spans) this.set("opened", [spans.key(span)], !on);
  }

  /** Let a slice be seen. */
  open(slice: number): void {
    const { spans } = this.model;
    if (spans && !this.isSeen(slice))
      this.set("opened", [spans.key(spans.around[slice] as number)], true);
  }

  /** Select a span of time on the tracks between two heights, on all that are seen without them. */
  select(from: number, to: number, within: (bar: Bar) => boolean): void {
    const bars = this.tracks.bars.filter((bar) => bar.track >= 0 && within(bar));
    const tracks = bars.map((bar) => bar.track);
    this.area = {
      from: Math.round(Math.min(from, to)),
      to: Math.round(Math.max(from, to)),
      tracks,
    };
  }

  link(): State {
    const found: State = {};
    for (const list of LISTS)
      if (this.choices[list].size) found[list] = [...this.choices[list]].sort().join("~");
    const { area } = this;
    if (area) found["area"] = `${area.from},${area.to},${ranges(area.tracks)}`;
    return found;
  }

  restore(state: State): void {
    for (const list of LISTS) this.set(list, state[list]?.split("~") ?? [], true);
    const [from, to, tracks] = state["area"]?.split(",") ?? [];
    const span = figures(`${from},${to}`, 2);
    if (!span) return;
    const known = numbers(tracks ?? "").filter((track) => this.model.tracks[track]);
    this.area = { from: span[0] as number, to: span[1] as number, tracks: known };
  }

  /** The rows of a track: tasks, layers if they are shown, operators that are not folded. */
  private rows(track: number, levels: Int32Array[]): Int32Array[] {
    const { model, choices } = this;
    const base = choices.apart ? model.apart(track) : levels;
    const { spans } = model;
    if (!spans) return base;
    let found = this.folded.get(track);
    if (!found) {
      const frames = model.frames(base);
      const rest = base
        .slice(frames.length)
        .map((slices) => slices.filter((slice) => this.isSeen(slice)))
        .filter((slices) => slices.length);
      found = [...frames, ...(spans.rows[track] ?? []), ...rest];
      this.folded.set(track, found);
    }
    return found;
  }

  /** By track, its rows without those that are empty in all steps in view: moving within a step
   * moves no track. */
  private levels(): Int32Array[][] {
    const { model, window } = this;
    const seen = this.seen();
    const steps = model.steps.filter((step) => step.to > window.from && step.from < window.to);
    const from = Math.min(window.from, ...steps.slice(0, 1).map((step) => step.from));
    const to = Math.max(window.to, ...steps.slice(-1).map((step) => step.to));
    return model.tracks.map((track, number) => {
      if (!seen.some((step) => track.steps.has(step))) return [];
      return this.rows(number, track.levels).filter((slices) => {
        const [first, last] = model.between(slices, from, to);
        return first < last;
      });
    });
  }
}
