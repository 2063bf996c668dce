// What keys do in the graph.

import type { DiagramCanvas } from "./canvas";
import type { Visible } from "./fold";
import type { GraphModel } from "./model";
import { nextBox } from "./steps";

/** What the keys steer. */
export interface Steered {
  readonly model: GraphModel;
  readonly canvas: DiagramCanvas;
  readonly shown: Visible;
  readonly selected: number; // box, -1 for none
  readonly opened: number; // group that was opened last, -1 for none
  isFolded(group: number): boolean;
  pick(box: number): void;
  open(box: number): void;
  fold(group: number): void;
  openTimeline(): void;
  find(): void;
}

/** By name of a key. */
export function commands(view: Steered): Record<string, () => void> {
  return {
    ArrowDown: () => step(view, 0, 1),
    ArrowUp: () => step(view, 0, -1),
    ArrowLeft: () => step(view, -1, 0),
    ArrowRight: () => step(view, 1, 0),
    Enter: () => view.open(view.selected),
    Escape: () => view.pick(-1),
    "+": () => view.canvas.zoom(1.4),
    "=": () => view.canvas.zoom(1.4),
    "-": () => view.canvas.zoom(1 / 1.4),
    "0": () => view.canvas.fit(true),
    "/": () => view.find(),
    f: () => foldAround(view),
    t: () => view.openTimeline(),
  };
}

/** Fold the innermost open group around the selection. */
function foldAround(view: Steered): void {
  const { model, opened } = view;
  if (opened >= 0) return view.fold(opened);
  const first = view.shown.members[view.selected]?.[0];
  if (first === undefined) return;
  const group = [...model.groupsOf(model.twin(first))].find((around) => !view.isFolded(around));
  if (group !== undefined) view.fold(group);
}

function step(view: Steered, across: number, down: number): void {
  const { opened, shown, selected } = view;
  const first = opened < 0 ? undefined : shown.boxOf[view.model.firstIn(opened)];
  if (selected < 0 && first !== undefined) return view.pick(first);
  const next = nextBox(shown, view.canvas.scene.layout, selected, across, down);
  if (next >= 0) view.pick(next);
}
