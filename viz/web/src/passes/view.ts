// What each pass changed: one drawing in which a node has its place for good.

import type { Context, Panel, State } from "../bus";
import { Controls } from "../controls";
import { CHANGES, REPLICATION, excerpt } from "./changes";
import type { PassesData } from "../data";
import { children, h, uniqueId } from "../dom";
import { plural } from "../format";
import { DiagramCanvas, sightOf, sightText } from "../graph/canvas";
import type { Diagram } from "../graph/diagram";
import type { Layout } from "../graph/layout";
import type { Scene } from "../graph/scene";
import { Placing } from "../graph/placing";
import { stubs } from "../graph/stubs";
import { type Stage, allLinks, diagramOf, stagesOf } from "./diagram";
import { Folds } from "./folds";
import { type Drawn, Looks, nothing } from "./looks";
import { counts, MARKS, nodeDetails, stageDetails, type Subject } from "./side";
import { frame, helpText, roleLegend, zoomButtons } from "../panel";

const FEW = 60; // operators that are drawn even if they did not change, if all of them can be read

export class PassesView implements Panel {
  readonly element: HTMLElement;
  readonly canvas: DiagramCanvas;
  stage = 0;
  private readonly stages: Stage[];
  private readonly positions = new Map<number, number>();
  private drawn = nothing();
  private found: Folds | null = null;
  private isStale = true; // other boxes are to be drawn
  private whole = false;
  private areFew: boolean | undefined; // known once there is room
  private said = "";
  private selected = -1; // node
  private readonly placing = new Placing();
  private readonly slider: HTMLInputElement;
  private readonly summary = h("p", { class: "summary", role: "status" });
  private readonly side = h("aside", { class: "details", "aria-label": "What the pass changed" });
  private readonly items: HTMLElement[];
  private readonly list: HTMLElement;
  private readonly looks = new Looks((id) => this.position(id));
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
      click: (box, event) => this.click(box, event.shiftKey),
      bracket: ({ group }) => this.toggle(group),
      linkTip: () => [],
      moved: () => {
        this.isMoved = true;
        context.changed();
      },
      tip: (box) => this.tip(box),
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
    this.looks.tell(stage);
    this.said = `After ${stage.name}: ${plural(stage.nodes.length, "operator")}; ${counts(stage)}`;
    this.summary.textContent = this.said; // also before there is room to draw
    this.selected = this.canvas.scene.selected = -1;
    this.describeStage(stage);
    this.isStale ||= !this.isWhole;
    this.draw();
    this.context.changed();
  }

  /** The first pass that changed something; what replication does is the same for every program. */
  private firstChange(): number {
    const busy = this.stages.filter((stage) => CHANGES.some((kind) => stage[kind].length));
    const first = busy.find((stage) => stage.name !== REPLICATION) ?? busy[0];
    return first ? this.stages.indexOf(first) : 0;
  }

  /** All operators of all stages. */
  private get folds(): Folds {
    return (this.found ??= new Folds(this.data, allLinks(this.stages, this.positions)));
  }

  private position(id: number): number {
    return this.positions.get(id) ?? -1;
  }

  /** What is laid out: changes with what is next to them, or all operators, folded to be read. */
  private chosen(): Drawn {
    if (this.isWhole) {
      if (this.canvas.room) this.folds.fit(this.canvas.room);
      return this.folds.drawn();
    }
    const { stages, data } = this;
    const stage = stages[this.stage] as Stage;
    const found = excerpt(data.nodes, (id) => this.position(id), stage, stages[this.stage - 1]);
    const kinds = plural(found.kinds, "different change");
    const cut = found.cut ? `, ${plural(found.cut, "operator")} not drawn` : "";
    const copies = found.copies ? `, copies on other devices not drawn` : "";
    const drawn = found.kinds ? `; ${kinds}, each drawn once${cut}${copies}` : "";
    this.summary.textContent = this.said + drawn;
    return {
      diagram: diagramOf(this.data, found.nodes, found.links, found.times),
      members: found.nodes.map((node) => [node]),
      folds: found.nodes.map(() => -1),
    };
  }

  private get isWhole(): boolean {
    return this.whole || this.allFit();
  }

  /** Whether all operators of all stages are few, and can be read without folding any. */
  private allFit(): boolean {
    const { room } = this.canvas;
    if (this.areFew !== undefined || !room) return this.areFew ?? this.data.nodes.length <= FEW;
    this.areFew = this.data.nodes.length <= FEW;
    if (this.areFew) {
      this.folds.fit(room);
      this.areFew = this.folds.drawn().folds.every((fold) => fold < 0);
    }
    return this.areFew;
  }

  /** Say what the pass did to all operators, and in how many boxes they are. */
  private say(): void {
    const folded = this.drawn.folds.some((fold) => fold >= 0);
    const boxes = `; drawn in ${plural(this.drawn.members.length, "box")}`;
    this.summary.textContent = this.said + (folded ? boxes : "");
  }

  /** Draw the stage; what is drawn whole keeps its places, `keep` also on the screen. */
  private draw(keep = -1): void {
    const { canvas, looks } = this;
    if (!canvas.room) return;
    const isNew = this.isStale || !canvas.scene.layout.x.length;
    const from = looks.boxes.get(keep);
    if (isNew) looks.show((this.drawn = this.chosen()));
    this.isStale = false;
    if (this.isWhole) this.say();
    looks.join(this.stages[this.stage], this.stages[this.stage - 1]);
    if (!isNew) {
      if (looks.first !== undefined) canvas.reveal(looks.first);
      return canvas.redraw();
    }
    const { diagram } = this.drawn;
    const to = looks.boxes.get(keep);
    const kept = from === undefined || to === undefined ? undefined : { from, to };
    this.placing.place(diagram, canvas.room, (placed) => {
      canvas.show(this.scene(diagram, placed), kept);
      if (looks.first !== undefined && !kept) canvas.reveal(looks.first);
    });
  }

  private scene(diagram: Diagram, placed: Layout): Scene {
    return {
      diagram,
      layout: placed,
      stubs: stubs(diagram, placed),
      hovered: -1,
      look: (box) => this.looks.look(box),
      linkState: (link) => this.looks.linkState(link, this.canvas.scene.selected),
      linkLabel: () => "",
      selected: this.looks.boxes.get(this.selected) ?? -1,
    };
  }

  /** A box that stands for several operators opens; with shift it is selected, as any other. */
  private click(box: number, isShift: boolean): void {
    const fold = this.drawn.folds[box] ?? -1;
    if (fold >= 0 && !isShift) this.toggle(fold, this.drawn.members[box]?.[0]);
    else this.select(this.drawn.members[box]?.[0] ?? -1);
  }

  private tip(box: number): string[] {
    const [members, shown] = [this.drawn.members[box] ?? [], this.drawn.diagram.boxes[box]];
    const detail = (members.length > 1 ? shown : this.data.nodes[members[0] ?? -1])?.detail ?? "";
    const hint = (this.drawn.folds[box] ?? -1) >= 0 ? "click to open" : "";
    return shown ? [shown.label, detail, this.looks.text(members), hint] : [];
  }

  private toggle(fold: number, keep = -1): void {
    this.folds.toggle(fold);
    this.isStale = true;
    this.draw(keep);
    this.context.changed();
  }

  private build(): HTMLElement {
    const step = (by: number): void => this.show(this.stage + by);
    const tools = [
      h("button", { onclick: () => step(-1), "aria-label": "Pass before" }, "◂ Before"),
      this.slider,
      h("button", { onclick: () => step(1), "aria-label": "Next pass" }, "Next ▸"),
      this.controls.checkbox("everything", "All operators", false, (on) => {
        this.whole = on;
        this.isStale = true;
        this.show(this.stage);
      }),
      this.controls.checkbox("changes", "Only changes in full colour", false, (on) => {
        this.looks.onlyChanges = on;
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
    this.selected = position;
    if (centre && (this.drawn.folds[this.looks.boxes.get(position) ?? -1] ?? -1) >= 0) {
      this.folds.reveal(position);
      this.isStale = true;
      this.draw(position);
    }
    const box = this.looks.boxes.get(position) ?? -1;
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
        ...children(nodeDetails(this.subject(stage), position, this.looks.changes.get(position))),
      );
      if (box >= 0) this.canvas.reveal(box, centre);
    }
    this.canvas.redraw();
  }

  link(): State {
    const found = this.controls.link();
    if (this.selected >= 0) found["box"] = String(this.selected);
    if (this.isMoved) found["at"] = sightText(this.canvas.sight);
    if (this.whole) found["open"] = this.folds.state;
    return found;
  }

  restore(state: State): void {
    if (state["open"] !== undefined) this.folds.state = state["open"];
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
