// What is said beside the mouse about a slice.

import { h } from "../dom";
import { nanoseconds } from "../format";
import type { TimelineModel } from "./model";
import type { Point } from "./pointer";

export class Tip {
  readonly element = h("div", { class: "tip", hidden: true });

  constructor(
    private readonly model: TimelineModel,
    private readonly roles: Record<string, string>,
  ) {}

  get isShown(): boolean {
    return !this.element.hidden;
  }

  /** Speak of a slice; -1 for none. */
  show(slice: number, at: Point | null, room: { width: number; height: number }): void {
    const { element, model } = this;
    element.hidden = slice < 0 || !at;
    if (slice < 0 || !at) return;
    const role = this.roles[model.role(slice)] ?? model.role(slice);
    element.replaceChildren(
      h("b", {}, model.name(slice)),
      h("div", {}, `${nanoseconds(model.duration(slice))} from ${model.when(slice)}`),
      h("div", {}, `${role} · ${model.trackOf(slice).group} · step ${model.step(slice)}`),
    );
    element.style.left = `${Math.min(at.x + 14, room.width - element.offsetWidth - 8)}px`;
    element.style.top = `${Math.min(at.y + 16, room.height - element.offsetHeight - 8)}px`;
  }
}
