// What each pass changed: one drawing in which a node has its place for good.

import type { Context, Panel, State } from "../bus";
import { Controls } from "../controls";
import { CHANGES, type Change, REPLICATION, excerpt } from "./changes";
import type { PassesData } from "../data";
import { children, h, uniqueId } from "../dom";
import { plural } from "../format";
import { DiagramCanvas, sightOf, sightText } from "../graph/canvas";
import type { Diagram } from "../graph/diagram";
import type { Layout } from "../graph/layout";
import { plainLook } from "../graph/paint";
import type { Look, Scene } from "../graph/scene";
import { Placing } from "../graph/placing";
import { stubs } from "../graph/stubs";
import { type Stage, allLinks, diagramOf, stagesOf } from "./diagram";
import { counts, MARKS, nodeDetails, stageDetails, type Subject } from "./side";
import { frame, helpText, roleLegend, zoomButtons } from "../panel";
import { colour } from "../theme";

const FEW = 60; // operators that are drawn even if they did not change

export class PassesView implements Panel {
  readonly element: HTMLElement;
  readonly canvas: DiagramCanvas;
  stage = 0;
  private readonly stages: Stage[];
  private readonly positions = new Map<number, number>();
  private diagram: Diagram = { boxes: [], links: [], lanes: new Map(), spans: [] };
  private union: Diagram | null = null; // all operators of all stages
  private nodes: number[] = []; // by box
  private boxes: Map<number, number> | null = null; // by node, unless they are the same
  private whole = false;
  private said = "";
  private selected = -1; // node
  private readonly placing = new Placing();
  private readonly slider: HTMLInputElement;
  private readonly summary = h("p", { class: "summary", role: "status" });
  private readonly side = h("aside", { class: "details", "aria-label": "What the pass changed" });
  private readonly items: HTMLElement[];
  private readonly list: HTMLElement;
  private present = new Set<number>();
  private links = new Set<string>();
  private ghosts = new Set<string>(); // links of the stage before
  private changes = new Map<number, Change>();
  private onlyChanges = false;
  private isMoved = false;
  private readonly controls: Controls;

  constructor(
    private readonly data: PassesData,
    private readonly context: Context,
  ) {
    data.nodes.forEach((node, position) => this.positions.set(node.id, position));
    this.stages = stagesOf(data);
    this.canvas = new DiagramCanvas({
      ready: () => this.draw(),
      click: (box) => this.select(this.nodes[box] ?? -1),
      bracket: () => {},
      linkTip: () => [],
      moved: () => {
        this.isMoved = true;
        context.changed();
      },
      tip: (box) => {
        const node = data.nodes[this.nodes[box] ?? -1];
        const change = this.changes.get(this.nodes[box] ?? -1) ?? "";
        return node ? [this.diagram.boxes[box]?.label ?? "", node.detail, change] : [];
      },
    });
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: this.stages.length - 1,
      value: 0,
      "aria-label": "Pass",
      oninput: () => this.show(Number(this.slider.value)),
    });
    this.items = this.stages.map((stage, number) => this.item(stage, number));
    this.list = h(
      "div",
      {
        class: "stages",
        role: "listbox",
        tabindex: 0,
        "aria-label": "Passes",
      },
      this.items,
    );
    this.canvas.element.setAttribute(
      "aria-label",
      "Graph after the pass. Left and right arrow go from pass to pass; the list beside it says what changed.",
    );
    this.controls = new Controls(context.changed);
    this.element = this.build();
    this.show(this.firstChange());
    this.isMoved = false;
    this.controls.adopt("pass", this.slider);
  }

  reveal(): void {
    this.canvas.redraw();
  }

  /** Show the graph after a pass. */
  show(number: number): void {
    this.stage = Math.max(0, Math.min(this.stages.length - 1, number));
    const stage = this.stages[this.stage] as Stage;
    this.slider.value = String(this.stage);
    this.slider.setAttribute("aria-valuetext", stage.name);
    this.items.forEach((item, at) => item.setAttribute("aria-selected", String(at === this.stage)));
    this.list.setAttribute("aria-activedescendant", this.items[this.stage]?.id ?? "");
    this.items[this.stage]?.scrollIntoView({ block: "nearest" });
    this.present = new Set(stage.nodes.map((id) => this.position(id)));
    this.links = new Set(stage.links.map(([a, b]) => `${this.position(a)}-${this.position(b)}`));
    const before = this.stages[this.stage - 1];
    this.ghosts = new Set(before?.links.map(([a, b]) => `${this.position(a)}-${this.position(b)}`));
    this.changes = new Map();
    for (const kind of CHANGES) {
      for (const id of stage[kind]) this.changes.set(this.position(id), kind);
    }
    this.said = `After ${stage.name}: ${plural(stage.nodes.length, "operator")}; ${counts(stage)}`;
    this.selected = this.canvas.scene.selected = -1;
    this.describeStage(stage);
    this.draw();
    this.context.changed();
  }

  /** The first pass that changed something; what replication does is the same for every program. */
  private firstChange(): number {
    const busy = this.stages.filter((stage) => CHANGES.some((kind) => stage[kind].length));
    const first = busy.find((stage) => stage.name !== REPLICATION) ?? busy[0];
    return first ? this.stages.indexOf(first) : 0;
  }

  private position(id: number): number {
    return this.positions.get(id) ?? -1;
  }

  /** What is laid out: changes with what is next to them, or all operators of all stages. */
  private drawn(): Diagram {
    if (this.whole || this.data.nodes.length <= FEW) {
      this.nodes = this.data.nodes.map((_, position) => position);
      this.boxes = null;
      this.summary.textContent = this.said;
      return (this.union ??= diagramOf(
        this.data,
        this.nodes,
        allLinks(this.stages, this.positions),
      ));
    }
    const { stages, data } = this;
    const stage = stages[this.stage] as Stage;
    const found = excerpt(data.nodes, (id) => this.position(id), stage, stages[this.stage - 1]);
    this.nodes = found.nodes;
    this.boxes = new Map(found.nodes.map((node, box) => [node, box]));
    const kinds = plural(found.kinds, "different change");
    const cut = found.cut ? `, ${plural(found.cut, "operator")} not drawn` : "";
    const copies = found.copies
      ? `, and not the ${plural(found.copies, "operator")} that another device runs as well`
      : "";
    const drawn = found.kinds ? `; drawn: ${kinds}, equal ones once${cut}${copies}` : "";
    this.summary.textContent = this.said + drawn;
    return diagramOf(this.data, found.nodes, found.links, found.times);
  }

  /** Draw the stage; what is drawn whole keeps its places. */
  private draw(): void {
    const before = this.diagram;
    this.diagram = this.drawn();
    const first = this.nodes
      .flatMap((node, box) => (this.changes.has(node) ? [box] : []))
      .sort((x, y) => x - y)[0];
    if (before === this.diagram && this.canvas.scene.layout.x.length) {
      if (first !== undefined) this.canvas.reveal(first);
      return this.canvas.redraw();
    }
    if (!this.canvas.room) return;
    const { diagram } = this;
    this.placing.place(diagram, this.canvas.room, (placed) => {
      this.canvas.show(this.scene(diagram, placed));
      if (first !== undefined) this.canvas.reveal(first);
    });
  }

  private scene(diagram: Diagram, placed: Layout): Scene {
    return {
      diagram,
      layout: placed,
      stubs: stubs(diagram, placed),
      hovered: -1,
      look: (box) => this.look(box),
      linkState: (link) => this.linkState(link),
      linkLabel: () => "",
      selected: -1,
    };
  }

  private look(number: number): Look | null {
    const box = this.diagram.boxes[number];
    const node = this.nodes[number] ?? -1;
    const change = this.changes.get(node);
    if (!box || (!this.present.has(node) && change !== "removed")) return null;
    const look = plainLook(box);
    look.dim = this.onlyChanges && !change;
    if (!change) return look;
    look.sign = MARKS[change];
    look.line = colour(change);
    look.fill = colour(`${change}-fill`);
    look.dashed = change === "removed";
    look.detail = box.detail || change;
    return look;
  }

  private linkState(number: number): ReturnType<Scene["linkState"]> {
    const link = this.diagram.links[number];
    if (!link) return "hidden";
    const ends = [link.source, link.target].map((box) => this.nodes[box] ?? -1);
    const key = ends.join("-");
    const { selected } = this.canvas.scene;
    if (this.links.has(key)) {
      if (selected >= 0 && (link.source === selected || link.target === selected)) return "strong";
      return this.onlyChanges ? "dim" : "plain";
    }
    const removed = ends.some((node) => this.changes.get(node) === "removed");
    return removed && this.ghosts.has(key) ? "dim" : "hidden";
  }

  private build(): HTMLElement {
    const step = (by: number): void => this.show(this.stage + by);
    const tools = [
      h("button", { onclick: () => step(-1), "aria-label": "Pass before" }, "◂ Before"),
      this.slider,
      h("button", { onclick: () => step(1), "aria-label": "Next pass" }, "Next ▸"),
      this.controls.checkbox("everything", "All operators", false, (on) => {
        this.whole = on;
        this.show(this.stage);
      }),
      this.controls.checkbox("changes", "Only changes in full colour", false, (on) => {
        this.onlyChanges = on;
        this.canvas.redraw();
      }),
      zoomButtons(
        (factor) => this.canvas.zoom(factor),
        () => this.canvas.fit(true),
      ),
    ];
    const used = new Set(this.data.nodes.map((node) => node.role));
    const roles = roleLegend(used, this.context.roles);
    const changes = CHANGES.map((kind) =>
      h(
        "li",
        {},
        h(
          "i",
          {
            style: `border-color:var(--${kind});background:var(--${kind}-fill);${kind === "removed" ? "border-style:dashed" : ""}`,
          },
          MARKS[kind],
        ),
        kind,
      ),
    );
    const legend = h("ul", { class: "legend", "aria-label": "Legend" }, changes, roles);
    return frame({
      notes: this.data.notes,
      tools,
      summary: this.summary,
      legend,
      left: this.list,
      main: this.canvas.element,
      right: this.side,
      help: helpText("passes"),
    });
  }

  private item(stage: Stage, number: number): HTMLElement {
    return h(
      "div",
      {
        role: "option",
        id: uniqueId("stage"),
        class: "stage",
        "aria-selected": "false",
        onclick: () => this.show(number),
      },
      h("span", { class: "name" }, stage.name),
      h("span", { class: "more" }, stage.note || counts(stage)),
    );
  }

  private describeStage(stage: Stage): void {
    this.side.replaceChildren(...children(stageDetails(this.subject(stage))));
  }

  private subject(stage: Stage): Subject {
    return {
      data: this.data,
      stage,
      position: (id) => this.position(id),
      choose: (position) => this.select(position, true),
    };
  }

  private select(position: number, centre = false): void {
    const box = this.boxes ? (this.boxes.get(position) ?? -1) : position;
    this.selected = position;
    this.canvas.scene.selected = box;
    const stage = this.stages[this.stage] as Stage;
    const node = this.data.nodes[position];
    if (!node) this.describeStage(stage);
    else {
      this.side.replaceChildren(
        h(
          "button",
          { class: "close", "aria-label": "Close details", onclick: () => this.select(-1) },
          "×",
        ),
        ...children(nodeDetails(this.subject(stage), position, this.changes.get(position))),
      );
      if (box >= 0) this.canvas.reveal(box, centre);
    }
    this.canvas.redraw();
  }

  link(): State {
    const found = this.controls.link();
    if (this.selected >= 0) found["box"] = String(this.selected);
    if (this.isMoved) found["at"] = sightText(this.canvas.sight);
    return found;
  }

  restore(state: State): void {
    this.controls.restore(state);
    if (this.data.nodes[Number(state["box"] ?? -1)]) this.select(Number(state["box"]));
    const sight = sightOf(state["at"]);
    if (sight) this.canvas.sight = sight;
  }

  key(event: KeyboardEvent): void {
    const inList = event.target === this.list;
    const commands: Record<string, () => void> = {
      ArrowLeft: () => this.show(this.stage - 1),
      ArrowRight: () => this.show(this.stage + 1),
      ...(inList && {
        ArrowUp: () => this.show(this.stage - 1),
        ArrowDown: () => this.show(this.stage + 1),
      }),
      Home: () => this.show(0),
      End: () => this.show(this.stages.length - 1),
      "+": () => this.canvas.zoom(1.4),
      "-": () => this.canvas.zoom(1 / 1.4),
      "0": () => this.canvas.fit(true),
      Escape: () => this.select(-1),
    };
    const command = commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  }
}
