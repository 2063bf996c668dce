// What each pass changed: one drawing in which a node has its place for good.

import type { Context, Panel, State } from "./bus";
import { Controls } from "./controls";
import type { PassStage, PassesData } from "./data";
import { h, uniqueId } from "./dom";
import { plural } from "./format";
import { DiagramCanvas, sightOf, sightText } from "./graph/canvas";
import type { Box, Diagram } from "./graph/diagram";
import { layout } from "./graph/columns";
import { plainLook } from "./graph/paint";
import type { Look, Scene } from "./graph/scene";
import { stubs } from "./graph/stubs";
import { frame, helpText, roleLegend, zoomButtons } from "./panel";
import { colour } from "./theme";

type Change = "added" | "removed" | "changed";
const MARKS: Record<Change, string> = { added: "+", removed: "−", changed: "~" };
const MOST = 200;

export class PassesView implements Panel {
  readonly element: HTMLElement;
  readonly canvas: DiagramCanvas;
  stage = 0;
  private readonly positions = new Map<number, number>();
  private readonly diagram: Diagram;
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
    this.diagram = this.union();
    this.canvas = new DiagramCanvas({
      ready: () => this.canvas.show(this.scene()),
      click: (box) => this.select(box),
      bracket: () => {},
      linkTip: () => [],
      moved: () => {
        this.isMoved = true;
        context.changed();
      },
      tip: (box) => {
        const node = data.nodes[box];
        return node ? [node.name, node.detail, this.changes.get(box) ?? ""] : [];
      },
    });
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: data.stages.length - 1,
      value: 0,
      "aria-label": "Pass",
      oninput: () => this.show(Number(this.slider.value)),
    });
    this.items = data.stages.map((stage, number) => this.item(stage, number));
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
    this.stage = Math.max(0, Math.min(this.data.stages.length - 1, number));
    const stage = this.data.stages[this.stage] as PassStage;
    this.slider.value = String(this.stage);
    this.slider.setAttribute("aria-valuetext", stage.name);
    this.items.forEach((item, at) => item.setAttribute("aria-selected", String(at === this.stage)));
    this.list.setAttribute("aria-activedescendant", this.items[this.stage]?.id ?? "");
    this.items[this.stage]?.scrollIntoView({ block: "nearest" });
    this.present = new Set(stage.nodes.map((id) => this.position(id)));
    this.links = new Set(stage.links.map(([a, b]) => `${this.position(a)}-${this.position(b)}`));
    const before = this.data.stages[this.stage - 1];
    this.ghosts = new Set(before?.links.map(([a, b]) => `${this.position(a)}-${this.position(b)}`));
    this.changes = new Map();
    for (const kind of ["added", "removed", "changed"] as const) {
      for (const id of stage[kind]) this.changes.set(this.position(id), kind);
    }
    this.summary.textContent = `After ${stage.name}: ${plural(stage.nodes.length, "operator")}; ${counts(stage)}`;
    this.canvas.scene.selected = -1;
    this.describeStage(stage);
    const first = [...this.changes.keys()].sort((a, b) => this.top(a) - this.top(b))[0];
    if (first !== undefined) this.canvas.reveal(first);
    this.canvas.redraw();
    this.context.changed();
  }

  private firstChange(): number {
    const found = this.data.stages.findIndex(
      (stage) => stage.added.length + stage.removed.length + stage.changed.length,
    );
    return Math.max(0, found);
  }

  private top(box: number): number {
    return this.canvas.scene.layout.y[box] as number;
  }

  private position(id: number): number {
    return this.positions.get(id) ?? -1;
  }

  /** All nodes and links of all stages: what is laid out. */
  private union(): Diagram {
    const boxes: Box[] = this.data.nodes.map((node) => ({
      label: node.name,
      detail: node.detail,
      role: node.role,
      lane: node.device,
      count: 1,
      stacked: false,
      folded: false,
    }));
    const seen = new Set<string>();
    const links: Diagram["links"] = [];
    for (const stage of this.data.stages) {
      for (const [a, b] of stage.links) {
        const [source, target] = [this.position(a), this.position(b)];
        const key = `${source}-${target}`;
        if (seen.has(key) || source === target) continue;
        seen.add(key);
        links.push({ source, target, order: false });
      }
    }
    const devices = [
      ...new Set(boxes.flatMap((box) => (box.lane === null ? [] : [box.lane]))),
    ].sort((a, b) => a - b);
    const lanes = new Map(
      devices.map((device) => [device, devices.length > 1 ? `device ${device}` : "program"]),
    );
    return { boxes, links, lanes, spans: [] };
  }

  private scene(): Scene {
    const placed = layout(this.diagram, this.canvas.room);
    return {
      diagram: this.diagram,
      layout: placed,
      stubs: stubs(this.diagram, placed),
      hovered: -1,
      look: (box) => this.look(box),
      linkState: (link) => this.linkState(link),
      linkLabel: () => "",
      selected: -1,
    };
  }

  private look(number: number): Look | null {
    const box = this.diagram.boxes[number];
    const change = this.changes.get(number);
    if (!box || (!this.present.has(number) && change !== "removed")) return null;
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
    const key = `${link.source}-${link.target}`;
    const { selected } = this.canvas.scene;
    if (this.links.has(key)) {
      if (selected >= 0 && (link.source === selected || link.target === selected)) return "strong";
      return this.onlyChanges ? "dim" : "plain";
    }
    const removed =
      this.changes.get(link.source) === "removed" || this.changes.get(link.target) === "removed";
    return removed && this.ghosts.has(key) ? "dim" : "hidden";
  }

  private build(): HTMLElement {
    const step = (by: number): void => this.show(this.stage + by);
    const tools = [
      h("button", { onclick: () => step(-1), "aria-label": "Pass before" }, "◂ Before"),
      this.slider,
      h("button", { onclick: () => step(1), "aria-label": "Next pass" }, "Next ▸"),
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
    const changes = (["added", "removed", "changed"] as const).map((kind) =>
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

  private item(stage: PassStage, number: number): HTMLElement {
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

  private describeStage(stage: PassStage): void {
    const section = (kind: Change): HTMLElement[] => {
      const ids = stage[kind];
      if (!ids.length) return [];
      const rows = ids.slice(0, MOST).map((id) => {
        const position = this.position(id);
        const node = this.data.nodes[position];
        const where =
          node?.device === null || node?.device === undefined ? "" : ` · device ${node.device}`;
        return h(
          "li",
          {},
          h(
            "button",
            { class: "link", onclick: () => this.select(position, true) },
            `${MARKS[kind]} ${node?.name ?? ""}`,
          ),
          h("span", { class: "more" }, `${node?.detail ?? ""}${where}`),
        );
      });
      const more =
        ids.length > MOST ? [h("p", { class: "more" }, `and ${ids.length - MOST} more`)] : [];
      return [h("h3", {}, `${kind} (${ids.length})`), h("ul", { class: "plain" }, rows), ...more];
    };
    const content = [...section("added"), ...section("removed"), ...section("changed")];
    this.side.replaceChildren(
      h("h2", {}, stage.name),
      stage.note ? h("p", {}, stage.note) : h("p", {}, counts(stage)),
      ...content,
    );
  }

  private select(box: number, centre = false): void {
    this.canvas.scene.selected = box;
    const stage = this.data.stages[this.stage] as PassStage;
    const node = this.data.nodes[box];
    if (!node) this.describeStage(stage);
    else {
      const change = this.changes.get(box);
      this.side.replaceChildren(
        h(
          "button",
          { class: "close", "aria-label": "Close details", onclick: () => this.select(-1) },
          "×",
        ),
        h("h2", {}, node.name),
        h(
          "p",
          {},
          change ? `${MARKS[change]} ${change} by ${stage.name}` : `unchanged by ${stage.name}`,
        ),
        h(
          "ul",
          { class: "plain" },
          node.lines.map((line) => h("li", {}, line)),
        ),
      );
      this.canvas.reveal(box, centre);
    }
    this.canvas.redraw();
  }

  link(): State {
    const found = this.controls.link();
    if (this.canvas.scene.selected >= 0) found["box"] = String(this.canvas.scene.selected);
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
      End: () => this.show(this.data.stages.length - 1),
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

function counts(stage: PassStage): string {
  const parts = (["added", "removed", "changed"] as const)
    .filter((kind) => stage[kind].length)
    .map((kind) => `${MARKS[kind]}${stage[kind].length} ${kind}`);
  return parts.length ? parts.join(", ") : "changed nothing";
}
