// How boxes and links look after a pass: what it added, removed and changed stands out.

import { count } from "../format";
import type { Diagram } from "../graph/diagram";
import { plainLook } from "../graph/paint";
import type { Look, Scene } from "../graph/scene";
import { colour } from "../theme";
import { CHANGES, type Change } from "./changes";
import type { Stage } from "./diagram";
import { MARKS } from "./side";

/** What is drawn. */
export interface Drawn {
  diagram: Diagram;
  members: number[][]; // operators by box
  folds: number[]; // by box, what it opens to; -1 for a single operator
}

export class Looks {
  changes = new Map<number, Change>(); // by operator
  onlyChanges = false;
  boxes = new Map<number, number>(); // by operator
  private drawn: Drawn = nothing();
  private present = new Set<number>();
  private links = new Set<string>(); // pairs of boxes
  private ghosts = new Set<string>(); // of the stage before

  constructor(private readonly position: (id: number) => number) {}

  /** Speak of another stage. */
  tell(stage: Stage): void {
    this.present = new Set(stage.nodes.map(this.position));
    this.changes = new Map();
    for (const kind of CHANGES)
      for (const id of stage[kind]) this.changes.set(this.position(id), kind);
  }

  /** Speak of other boxes. */
  show(drawn: Drawn): void {
    this.drawn = drawn;
    this.boxes = new Map(drawn.members.flatMap((own, box) => own.map((node) => [node, box])));
  }

  /** Find which links there are in a stage, and which were in the one before. */
  join(stage: Stage | undefined, before: Stage | undefined): void {
    const box = (id: number): number => this.boxes.get(this.position(id)) ?? -1;
    const pairs = (of: Stage | undefined): Set<string> =>
      new Set(of?.links.map(([a, b]) => `${box(a)}-${box(b)}`));
    [this.links, this.ghosts] = [pairs(stage), pairs(before)];
  }

  /** The first box with a change; undefined for none. */
  get first(): number | undefined {
    return [...this.changes.keys()]
      .flatMap((node) => this.boxes.get(node) ?? [])
      .sort((x, y) => x - y)[0];
  }

  look(number: number): Look | null {
    const box = this.drawn.diagram.boxes[number];
    const members = this.drawn.members[number] ?? [];
    const found = members.map((node) => this.changes.get(node));
    const seen = members.some((node, at) => this.present.has(node) || found[at] === "removed");
    if (!box || !seen) return null;
    const look = plainLook(box);
    const change = CHANGES.find((kind) => found.includes(kind));
    look.dim = this.onlyChanges && !change;
    if (!change) return look;
    look.sign = MARKS[change];
    look.line = colour(change);
    look.fill = colour(`${change}-fill`);
    look.dashed = found.every((one) => one === "removed");
    look.detail = members.length > 1 ? this.text(members) : box.detail || change;
    return look;
  }

  /** What the pass did to some operators: how many of them it added, removed or changed. */
  text(members: number[]): string {
    const found = members.flatMap((node) => this.changes.get(node) ?? []);
    if (members.length === 1) return found[0] ?? "";
    return CHANGES.map((kind) => [kind, found.filter((one) => one === kind).length] as const)
      .filter(([, times]) => times)
      .map(([kind, times]) => `${MARKS[kind]}${count(times)} ${kind}`)
      .join(", ");
  }

  linkState(number: number, selected: number): ReturnType<Scene["linkState"]> {
    const link = this.drawn.diagram.links[number];
    if (!link) return "hidden";
    const ends = [link.source, link.target];
    const key = ends.join("-");
    if (this.links.has(key)) {
      if (selected >= 0 && ends.includes(selected)) return "strong";
      return this.onlyChanges ? "dim" : "plain";
    }
    const removed = ends.some((box) =>
      this.drawn.members[box]?.some((node) => this.changes.get(node) === "removed"),
    );
    return removed && this.ghosts.has(key) ? "dim" : "hidden";
  }
}

export function nothing(): Drawn {
  return {
    diagram: { boxes: [], links: [], lanes: new Map(), spans: [] },
    members: [],
    folds: [],
  };
}
