// How boxes and links look: what is selected, found, critical, coloured, or at its moment.

import type { Stage } from "../play/stage";
import { SIGNS, roleFill, roleLine } from "../theme";
import type { Colouring } from "./colouring";
import type { Visible } from "./fold";
import type { Layout } from "./layout";
import type { GraphModel } from "./model";
import { plainLook } from "./paint";
import type { Look, Scene } from "./scene";

export class Looks {
  selected = -1; // box
  critical = false; // whether the critical path stands out
  private hits: Set<number> | null = null; // boxes
  private found: Set<number> | null = null; // nodes
  private near = new Set<number>(); // boxes joined with the selected one

  constructor(
    private readonly model: GraphModel,
    private readonly colouring: Colouring,
    private readonly stage: Stage | null,
    private shown: Visible,
  ) {}

  /** Other boxes are drawn. */
  show(shown: Visible): void {
    this.shown = shown;
  }

  select(box: number): void {
    this.selected = box;
    this.near = new Set();
    for (const link of this.shown.links) {
      if (link.source === box) this.near.add(link.target);
      if (link.target === box) this.near.add(link.source);
    }
  }

  /** Make some nodes stand out, e.g. the hits of a search. */
  mark(nodes: Set<number> | null): void {
    this.found = nodes;
    this.markHits();
  }

  /** Find the boxes of the nodes that stand out. */
  markHits(): void {
    const { found, shown } = this;
    this.hits = found && new Set([...found].map((node) => shown.boxOf[node] as number));
  }

  box(number: number): Look | null {
    const box = this.shown.boxes[number];
    if (!box) return null;
    const look = plainLook(box);
    this.colouring.apply(look, number);
    if (this.model.failed.size && this.hasFailed(number)) fail(look);
    if (this.hits) look.dim = !this.hits.has(number);
    else if (this.selected >= 0) look.dim = number !== this.selected && !this.near.has(number);
    if (this.hits?.has(number)) look.strong = "marked";
    if (this.critical) {
      const on = (this.shown.members[number] ?? []).some((member) =>
        this.model.critical.has(member),
      );
      look.strong = on ? "critical" : look.strong;
      look.dim = !on && this.selected < 0;
    }
    this.stage?.apply(look, number);
    return look;
  }

  private hasFailed(number: number): boolean {
    return (this.shown.members[number] ?? []).some((member) => this.model.failed.has(member));
  }

  link(link: number, layout: Layout): ReturnType<Scene["linkState"]> {
    const data = this.shown.links[link];
    if (!data) return "hidden";
    const played = data.order ? null : this.stage?.linkState(link, layout);
    if (played) return played;
    // Orders alone are said in a note and in the details; drawn far, they would pass behind boxes.
    const { row } = layout;
    if (data.order && row[data.target] !== (row[data.source] as number) + 1) return "hidden";
    if (this.selected >= 0 && (data.source === this.selected || data.target === this.selected))
      return "strong";
    if (this.critical && this.isCritical(link)) return "critical";
    if (data.order) return "hidden";
    return this.selected >= 0 || this.critical || this.hits ? "dim" : "plain";
  }

  private isCritical(link: number): boolean {
    return (this.shown.linkEdges[link] ?? []).some((edge) => this.model.criticalEdges.has(edge));
  }
}

/** What failed is red, whatever colours mean. */
function fail(look: Look): void {
  look.fill = roleFill("failure");
  look.line = roleLine("failure");
  look.sign = SIGNS.failure ?? "";
  look.strong = "critical";
}
