// The graph at the moment of the playhead: what runs, which tensors are there, who waits for whom.

import type { Camera } from "../graph/camera";
import { type Visible, flowText } from "../graph/fold";
import type { Layout } from "../graph/layout";
import type { GraphModel } from "../graph/model";
import { routesIn } from "../graph/near";
import type { Look, Scene } from "../graph/scene";
import { count } from "../format";
import { colour } from "../theme";
import { Moment } from "./moment";
import type { Playhead } from "./playhead";

type State = "future" | "running" | "waiting" | "done" | "apart";

const LABELS = 30; // tensors in view that are named at most
const FAR = 40; // links that are drawn behind boxes at most

export class Stage {
  private states: State[] = []; // by box
  private progress: string[] = []; // of folded boxes that run
  private far: { layout: Layout; links: Set<number> } | null = null;
  private near: { layout: Layout; links: Set<number> } | null = null; // alive, and not far
  private moment: Moment | null = null;
  private notes = new Map<number, string[]>(); // by box, for whom it waits
  private readonly start: Float64Array; // by node: when it began first; NaN: it did not run
  private readonly stop: Float64Array; // and ended last

  constructor(
    private readonly model: GraphModel,
    private readonly playhead: Playhead,
  ) {
    const count = model.nodes.length;
    this.start = new Float64Array(count).fill(NaN);
    this.stop = new Float64Array(count).fill(NaN);
    const { nodes, start, stop } = playhead.data;
    nodes.forEach((ids, work) => {
      for (const id of ids) {
        const at = model.position(id);
        if (at < 0) continue;
        const [from, to] = [start[work] as number, stop[work] as number];
        if (!((this.start[at] as number) <= from)) this.start[at] = from;
        if (!((this.stop[at] as number) >= to)) this.stop[at] = to;
      }
    });
  }

  /** Find out what every box and link is at the moment; returns the boxes that are different, null
   * for all of them. */
  update(shown: Visible): Set<number> | null {
    const time = this.playhead.time;
    if (time === null) return null;
    this.moment ??= new Moment(this.model, this.start, this.stop);
    const touched = this.moment.go(shown, time);
    if (!touched) {
      this.near = null;
      this.progress = [];
      this.states = shown.members.map((_, box) => this.stateOf(box));
      this.waits(shown, time);
      return null;
    }
    for (const link of this.moment.changed) this.follow(link);
    for (const box of this.notes.keys()) touched.add(box);
    for (const box of touched) this.states[box] = this.stateOf(box);
    this.waits(shown, time);
    for (const box of this.notes.keys()) touched.add(box);
    return touched;
  }

  /** Links that stand out, all that are drawn; null without a playhead. */
  standing(layout: Layout): Iterable<number> | null {
    if (this.playhead.time === null) return null;
    if (this.farIn(layout).size <= FAR) return this.alive;
    if (this.near?.layout !== layout) {
      this.near = { layout, links: new Set() };
      for (const link of this.alive) this.follow(link);
    }
    return this.near.links;
  }

  private follow(link: number): void {
    if (!this.near) return;
    if (this.alive.has(link) && !this.far?.links.has(link)) this.near.links.add(link);
    else this.near.links.delete(link);
  }

  /** Links on which there is a tensor. */
  private get alive(): ReadonlySet<number> {
    return this.moment?.alive ?? new Set();
  }

  apply(look: Look, box: number): void {
    if (this.playhead.time === null) return;
    const state = this.states[box];
    look.dim = state === "future" || state === "apart";
    look.strong = state === "running" ? "marked" : "";
    look.dashed = state === "waiting";
    look.detail = this.progress[box] ?? look.detail;
  }

  linkState(link: number, layout: Layout): ReturnType<Scene["linkState"]> | null {
    if (this.playhead.time === null) return null;
    if (!this.alive.has(link)) return "dim";
    const far = this.farIn(layout);
    return far.has(link) && far.size > FAR ? "dim" : "strong";
  }

  /** Links that pass behind boxes: a tag says what is on them where there are too many. */
  private farIn(layout: Layout): Set<number> {
    if (this.far?.layout !== layout) {
      const links = layout.routes.flatMap(({ far, link }) => (far ? [link] : []));
      this.far = { layout, links: new Set(links) };
    }
    return this.far.links;
  }

  /** The first box that runs, -1 for none. */
  get running(): number {
    return this.states.indexOf("running");
  }

  /** Names of tensors on their links, and beside boxes for whom they wait. */
  paint(context: CanvasRenderingContext2D, scene: Scene, camera: Camera, shown: Visible): void {
    if (this.playhead.time === null || camera.scale < 0.3) return;
    const larger = Math.max(1, Math.min(1.8, 0.8 / camera.scale));
    context.font = `${11 * larger}px system-ui, 'DejaVu Sans', sans-serif`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    if (camera.scale > 0.5) this.tensors(context, scene, camera, shown);
    const { layout } = scene;
    for (const [box, texts] of this.notes) {
      const x = (layout.x[box] as number) + (layout.w[box] as number) / 2;
      texts.forEach((text, line) => {
        const y = (layout.y[box] as number) - (9 + 15 * line) * larger;
        plate(context, text, x, y, larger, "warn");
      });
    }
  }

  private stateOf(box: number): State {
    const { known, done, running } = this.moment as Moment;
    const [all, ended, works] = [known[box], done[box], running[box]] as [number, number, number];
    delete this.progress[box];
    if (!all) return "apart";
    if (all > 1 && (works || (ended && ended < all)))
      this.progress[box] = `${count(ended)} of ${count(all)} are done`;
    if (works) return "running";
    return ended === all ? "done" : ended ? "waiting" : "future";
  }

  private waits(shown: Visible, time: number): void {
    this.notes = new Map();
    for (const { device, span, nodes, text } of this.playhead.data.waits) {
      if (!(span[0] <= time && time < span[1])) continue;
      const next = nodes
        .map((id) => this.model.position(id))
        .find((at) => at >= 0 && !((this.start[at] as number) <= time));
      if (next === undefined) continue;
      const box = shown.boxOf[next] as number;
      if (this.states[box] !== "running") this.states[box] = "waiting";
      this.notes.set(box, [...(this.notes.get(box) ?? []), `device ${device} waits ${text}`]);
    }
  }

  /** A tensor is there from the end of what makes it to the end of what reads it. */
  private isAlive(edge: number, time: number): boolean {
    const { source, target, vars } = this.model.edge(edge);
    if (!vars.length) return false;
    const [made, read] = [this.stop[source] as number, this.stop[target] as number];
    return made <= time && time < read;
  }

  private tensors(
    context: CanvasRenderingContext2D,
    scene: Scene,
    camera: Camera,
    shown: Visible,
  ): void {
    const { clientWidth, clientHeight } = context.canvas;
    const [from, to] = [camera.at(0, 0), camera.at(clientWidth, clientHeight)];
    const taken: { x: number; y: number; w: number }[] = [];
    const area = { left: from.x, top: from.y, right: to.x, bottom: to.y };
    for (const route of routesIn(scene.layout, area)) {
      if (taken.length >= LABELS || !this.alive.has(route.link)) continue;
      const p = route.points;
      const x = ((p[0] as number) + (p[2] ?? (p[0] as number))) / 2;
      const y = (p[1] as number) + 11;
      if (x < from.x || x > to.x || y < from.y || y > to.y) continue;
      const time = this.playhead.time as number;
      const edges = shown.linkEdges[route.link] ?? [];
      const text = flowText(
        this.model,
        edges.filter((edge) => this.isAlive(edge, time)),
      );
      const w = context.measureText(text).width + 10;
      const meets = taken.some(
        (other) => Math.abs(other.y - y) < 17 && Math.abs(other.x - x) < (other.w + w) / 2,
      );
      if (meets) continue;
      taken.push({ x, y, w });
      plate(context, text, x, y, 1, "accent");
    }
  }
}

function plate(
  context: CanvasRenderingContext2D,
  text: string,
  x: number,
  y: number,
  larger: number,
  frame: string,
): void {
  const w = context.measureText(text).width + 12 * larger;
  context.fillStyle = colour("page");
  context.strokeStyle = colour(frame);
  context.lineWidth = 1.2 * larger;
  context.beginPath();
  context.roundRect(x - w / 2, y - 8 * larger, w, 16 * larger, 4 * larger);
  context.fill();
  context.stroke();
  context.fillStyle = colour("text");
  context.fillText(text, x, y + 0.5);
}
