// What keys do in the timeline.

import type { TimeWindow } from "../window";
import type { Board } from "./board";
import type { TimelineModel } from "./model";
import type { Picture } from "./paint";

/** What the keys steer. */
export interface Steered {
  readonly model: TimelineModel;
  readonly picture: Picture;
  readonly board: Board;
  pick(slice: number, show: boolean): void;
  scrollTo(y: number): void;
  zoomToSelection(): void;
  arranged(): void;
  unfold(): void;
  openGraph(): void;
  sum(area: Board["area"]): void;
  find(): void;
}

/** By name of a key. */
export function commands(view: Steered): Record<string, () => void> {
  const { board, picture } = view;
  const zoom = (factor: number) => (): void => zoomBy(picture.window, factor);
  const pan = (by: number) => (): void => picture.window.pan(by);
  const track = (act: (key: string) => void) => (): void => withTrack(view, act);
  return {
    w: zoom(1.5),
    s: zoom(1 / 1.5),
    ArrowUp: zoom(1.5),
    ArrowDown: zoom(1 / 1.5),
    "+": zoom(1.5),
    "=": zoom(1.5),
    "-": zoom(1 / 1.5),
    a: pan(-0.15),
    d: pan(0.15),
    ArrowLeft: pan(-0.15),
    ArrowRight: pan(0.15),
    ",": () => go(view, -1),
    ".": () => go(view, 1),
    PageDown: () => view.scrollTo(picture.scroll + 200),
    PageUp: () => view.scrollTo(picture.scroll - 200),
    "0": () => picture.window.all(),
    f: () => view.zoomToSelection(),
    g: () => view.openGraph(),
    m: () => markSelected(view),
    c: track((key) => board.toggle("thin", key)),
    p: track((key) => board.toggle("pinned", key)),
    h: track((key) => board.set("hidden", [key], true)),
    "/": () => view.find(),
    Enter: () => view.unfold(),
    Escape: () => view.pick(-1, false),
  };
}

/** Zoom around the middle. */
export function zoomBy(window: TimeWindow, factor: number): void {
  window.zoom(factor, (window.from + window.to) / 2);
}

/** The slice before or after in the same row. */
function go(view: Steered, by: number): void {
  const { selected, tracks } = view.picture;
  if (selected < 0) {
    const first = tracks.rows.find((row) => row.slices.length)?.slices[0];
    return view.pick(first ?? -1, true);
  }
  const slices = tracks.rowOf(selected)?.slices ?? Int32Array.of();
  const next = slices[slices.indexOf(selected) + by];
  if (next !== undefined) view.pick(next, true);
}

/** Add up what happened while the selected slice ran, on all tracks. */
function markSelected(view: Steered): void {
  const { model, board } = view;
  const { selected } = view.picture;
  if (selected < 0) return;
  board.select(model.start(selected), model.stop(selected), () => true);
  view.sum(board.area);
}

/** Do something with the track of the selected slice. */
function withTrack(view: Steered, act: (key: string) => void): void {
  const { selected } = view.picture;
  if (selected < 0) return;
  act(`t${view.model.track(selected)}`);
  view.arranged();
}
