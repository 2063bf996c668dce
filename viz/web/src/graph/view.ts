// The graph: lanes, folding, search, colours, details, keyboard.

import type { Context, Panel, State } from "../bus";
import type { GraphData } from "../data";
import { Controls } from "../controls";
import { h } from "../dom";
import { count } from "../format";
import { numbers, ranges } from "../link";
import { SearchList } from "../list";
import { frame, helpText, roleLegend } from "../panel";
import { Side } from "../side";
import { onTheme } from "../theme";
import { DiagramCanvas, sightOf, sightText } from "./canvas";
import { type ColourBy, Colouring } from "./colouring";
import { commands } from "./commands";
import { type Actions, details, groupDetails } from "./details";
import { type FoldState, type Visible, flowText, visible } from "./fold";
import type { Layout } from "./layout";
import { foldedToRead } from "./legible";
import { foldedAt, kindOf } from "./levels";
import { Looks } from "./looks";
import { GraphModel } from "./model";
import { operators } from "./operators";
import { Placing } from "./placing";
import type { Scene } from "./scene";
import { stubs } from "./stubs";
import { READ, graphTools } from "./tools";
import { boxTip, linkTip } from "./tips";
import { Stage } from "../play/stage";

const MANY = 3000; // boxes

export class GraphView implements Panel {
  readonly element: HTMLElement;
  readonly model: GraphModel;
  readonly canvas: DiagramCanvas;
  shown: Visible;
  private readonly looks: Looks;
  private readonly state: FoldState;
  private readonly side = new Side(() => this.pick(-1));
  private readonly summary = h("p", { class: "summary", role: "status" });
  private readonly legend = h("ul", { class: "legend", "aria-label": "Legend" });
  private readonly search: SearchList;
  private readonly colouring: Colouring;
  private readonly placing = new Placing();
  private readonly stage: Stage | null;
  private readonly controls: Controls;
  private readonly commands = commands(this);
  private opening: string; // what is folded at first
  private restored: Set<number> | null = null; // what a link or somebody chose before it could be drawn
  private isMoved = false;
  private levels: HTMLSelectElement | null = null; // what is shown, of the kinds of groups
  opened = -1; // the group that was opened last, while nothing else is selected

  constructor(
    private readonly data: GraphData,
    private readonly context: Context,
  ) {
    this.model = new GraphModel(data);
    this.colouring = new Colouring(this.model);
    const folded = this.model.data.groups.flatMap((group, number) =>
      group.folded ? [number] : [],
    );
    this.state = { folded: new Set(folded), replicas: data.fold_replicas ?? false };
    this.shown = visible(this.model, this.state);
    this.stage = context.playhead && new Stage(this.model, context.playhead);
    this.stage?.update(this.shown);
    this.looks = new Looks(this.model, this.colouring, this.stage, this.shown);
    this.canvas = new DiagramCanvas({
      ready: () => this.begin(),
      click: (box, event) =>
        this.shown.boxes[box]?.folded && !event.shiftKey ? this.open(box) : this.pick(box),
      bracket: (bracket) => this.fold(bracket.group),
      tip: (box) => boxTip(this.model, this.shown, box),
      linkTip: (link) => linkTip(this.model, this.shown, link),
      moved: () => {
        this.isMoved = true;
        context.changed();
      },
    });
    this.controls = new Controls(context.changed);
    this.search = this.makeSearch();
    this.element = this.build();
    this.opening = ranges(this.state.folded);
    onTheme(() => this.showLegend());
    context.bus.listen((nodes, origin) => origin !== this && this.showNodes(nodes));
    context.playhead?.listen(() => {
      const touched = this.stage?.update(this.shown);
      const running = this.stage?.running ?? -1;
      if (context.playhead?.isPlaying && running >= 0) this.canvas.reveal(running, false);
      if (touched) this.canvas.touch(touched);
      else this.canvas.redraw();
    });
    this.refresh();
  }

  reveal(): void {
    this.canvas.redraw();
  }

  /** Open or close groups; what is selected stays where it is on the screen. */
  setFolded(
    folded: Set<number>,
    replicas = this.state.replicas,
    keep = -1,
    then: () => void = () => {},
  ): void {
    const anchor = keep >= 0 ? keep : (this.shown.members[this.selected]?.[0] ?? -1);
    const from = anchor >= 0 ? (this.shown.boxOf[anchor] as number) : -1;
    const shown = visible(this.model, { folded, replicas });
    if (!this.canvas.room) {
      Object.assign(this.state, { folded, replicas });
      this.see(shown); // drawn as soon as there is room
      this.restored = folded; // what somebody chose before that stays
      return;
    }
    if (shown.boxes.length > MANY)
      this.summary.textContent = `Placing ${count(shown.boxes.length)} boxes …`;
    this.placing.place(shown, this.canvas.room, (placed) => {
      Object.assign(this.state, { folded, replicas });
      this.see(shown);
      const to = anchor >= 0 ? (shown.boxOf[anchor] as number) : -1;
      this.looks.selected = this.selected >= 0 ? to : -1;
      const known = from >= 0 && from < this.canvas.scene.layout.x.length;
      this.canvas.show(this.scene(placed), known ? { from, to } : undefined);
      this.refresh();
      then();
    });
  }

  /** The selected box, -1 for none. */
  get selected(): number {
    return this.looks.selected;
  }

  private see(shown: Visible): void {
    this.shown = shown;
    this.looks.show(shown);
  }

  /** Open as far as can be read, once it is known how large the window is. */
  private begin(): void {
    const auto = this.data.fold === "auto";
    const found = auto ? this.readable(!this.restored) : this.state;
    if (!this.restored) this.controls.begin("twins", found.replicas);
    const folded = this.restored ?? found.folded;
    this.opening = ranges(found.folded);
    if (this.levels && auto && !this.restored) this.levels.value = found.folded.size ? READ : "";
    const { nodes } = this.context.bus;
    const { opened, selected } = this;
    this.setFolded(folded, found.replicas, -1, () => {
      if (opened >= 0) this.sayGroup(opened);
      if (nodes.length && selected < 0 && opened < 0) this.showNodes(nodes);
      this.canvas.settle();
    });
  }

  private readable(opens = false): FoldState {
    const mayJoin = opens && this.data.fold_replicas === null;
    return foldedToRead(this.model, this.state, this.canvas.room, mayJoin);
  }

  expand(group: number): void {
    const folded = new Set(this.state.folded);
    folded.delete(group);
    this.setFolded(
      folded,
      this.state.replicas,
      this.model.data.groups[group] ? this.model.firstIn(group) : -1,
    );
  }

  fold(group: number): void {
    const folded = new Set(this.state.folded).add(group);
    this.setFolded(folded, this.state.replicas, this.model.firstIn(group));
  }

  /** Select nodes by id; those hidden in a box select the box. */
  showNodes(ids: readonly number[]): void {
    const positions = ids.map((id) => this.model.position(id)).filter((position) => position >= 0);
    const first = positions[0];
    if (first === undefined) return;
    this.markNodes(positions.length > 1 ? new Set(positions) : null);
    const box = this.shown.boxOf[first] as number;
    this.select(box, true);
    if (this.shown.groups[box] === -1) this.search.mark(first);
  }

  private build(): HTMLElement {
    const { groups } = this.model.data;
    const { folded, replicas } = this.state;
    const colours = this.colouring.choices();
    const tools = graphTools(this.model, this.controls, folded, replicas, colours, {
      fold: (kind) =>
        this.setFolded(kind === READ ? this.readable().folded : foldedAt(groups, kind)),
      replicas: (one) => this.setFolded(this.state.folded, one),
      colour: (by) => {
        this.colouring.by = by as ColourBy;
        this.colouring.update(this.shown);
        this.showLegend();
      },
      critical: (on) => {
        this.looks.critical = on;
        this.showLegend();
      },
      zoom: (factor) => this.canvas.zoom(factor),
      fit: () => this.canvas.fit(true),
    });
    this.levels = tools.levels;
    this.canvas.element.setAttribute(
      "aria-label",
      `Graph ${this.data.title}. Arrow keys follow its links, Enter opens a folded box, / searches. The list of operators has the same content.`,
    );
    return frame({
      notes: this.data.notes,
      tools: tools.elements,
      summary: this.summary,
      legend: this.legend,
      left: this.search.element,
      main: this.canvas.element,
      right: this.side.element,
      help: helpText("graph"),
    });
  }

  private makeSearch(): SearchList {
    const list = new SearchList({
      ...operators(this.model),
      choose: (position) => this.choose(position),
      found: (hits) => this.markNodes(hits),
    });
    this.controls.adopt("find", list.field);
    return list;
  }

  /** Select one node, opening the groups around it. */
  private choose(position: number): void {
    const around = [...this.model.groupsOf(position)];
    const shownAs = this.shown.members[this.shown.boxOf[position] as number] ?? [];
    const byTwin = this.state.replicas && this.model.twin(position) !== position;
    if (around.some((group) => this.state.folded.has(group)) || (byTwin && shownAs.length > 1)) {
      const folded = new Set(this.state.folded);
      for (const group of [...around, ...this.model.groupsOf(this.model.twin(position))])
        folded.delete(group);
      return this.setFolded(folded, this.state.replicas, position, () => this.choose(position));
    }
    this.select(this.shown.boxOf[position] as number, true);
    this.tell([position]);
  }

  pick(box: number): void {
    if (!this.search.field.value) this.markNodes(null);
    this.select(box, false);
    this.tell(box < 0 ? [] : (this.shown.members[box] ?? []));
    if (box >= 0 && this.shown.groups[box] === -1)
      this.search.mark(this.shown.members[box]?.[0] ?? -1);
  }

  private tell(positions: number[]): void {
    this.context.bus.select(
      [...new Set(positions.map((position) => this.model.told(position)))],
      this,
    );
  }

  /** Show what a folded box holds; what the box said stays beside it. */
  open(box: number): void {
    const group = this.shown.groups[box] ?? -1;
    if (group < 0) return;
    const members = this.shown.members[box] ?? [];
    this.looks.selected = -1;
    this.expand(group);
    this.sayGroup(group);
    this.tell(members);
  }

  /** Details of an open group. */
  private sayGroup(group: number): void {
    const members = this.model.membersOf(group, this.state.replicas);
    const label = this.model.data.groups[group]?.label ?? "";
    this.opened = group;
    this.side.say(groupDetails(this.model, label, group, members, false, this.actions()));
  }

  private select(box: number, centre: boolean): void {
    this.looks.select(box);
    this.opened = -1;
    this.canvas.scene.selected = box;
    if (box >= 0) this.canvas.reveal(box, centre);
    this.canvas.redraw();
    this.showDetails();
    this.context.changed();
  }

  private actions(): Actions {
    const { bus, roles } = this.context;
    return {
      roles,
      choose: (node) => this.choose(node),
      expand: (group) => this.expand(group),
      fold: (group) => this.fold(group),
      round: () => this.setFolded(this.state.folded),
      timeline: bus.has("timeline") ? (nodes) => bus.open("timeline", nodes, this) : null,
    };
  }

  private showDetails(): void {
    if (this.selected < 0) return this.side.hide();
    this.side.say(details(this.model, this.shown, this.selected, this.actions()));
  }

  /** Bring everything that depends on the visible boxes up to date. */
  private refresh(): void {
    this.stage?.update(this.shown);
    this.summary.textContent = this.shown.summary;
    this.colouring.update(this.shown);
    this.looks.markHits();
    this.select(this.selected, false);
    this.showLegend();
  }

  /** Make some nodes stand out, e.g. the hits of a search. */
  private markNodes(nodes: Set<number> | null): void {
    this.looks.mark(nodes);
    this.canvas.redraw();
  }

  private scene(placed: Layout): Scene {
    return {
      diagram: this.shown,
      layout: placed,
      stubs: stubs(this.shown, placed),
      hovered: -1,
      look: (box) => this.looks.box(box),
      linkState: (link) => this.looks.link(link, this.canvas.scene.layout),
      linkLabel: (link) => flowText(this.model, this.shown.linkEdges[link] ?? []),
      selected: this.selected,
      played: () => this.stage?.standing(this.canvas.scene.layout) ?? null,
      over: (context, camera) => this.stage?.paint(context, this.canvas.scene, camera, this.shown),
    };
  }

  private showLegend(): void {
    const { colouring, looks, model } = this;
    const byRole = colouring.by === "role";
    const items = byRole ? roleLegend(model.roles, this.context.roles) : [colouring.legend()];
    if (looks.critical) items.push(h("li", {}, h("i", { class: "critical" }), "critical path"));
    this.legend.replaceChildren(...items);
    this.canvas.redraw();
  }

  link(): State {
    const found = this.controls.link();
    const folded = ranges(this.state.folded);
    if (folded !== this.opening) found["folded"] = folded;
    const first = this.shown.members[this.selected]?.[0];
    if (first !== undefined) found["box"] = String(first);
    else if (this.opened >= 0) found["open"] = String(this.opened);
    if (this.isMoved) found["at"] = sightText(this.canvas.sight);
    return found;
  }

  restore(state: State): void {
    this.controls.restore(state);
    const { folded, box, open } = state;
    const known = (group: number): boolean => this.model.data.groups[group] !== undefined;
    if (folded !== undefined) {
      this.restored = new Set(numbers(folded).filter(known));
      this.setFolded(this.restored);
    }
    this.select(this.shown.boxOf[Number(box ?? -1)] ?? -1, false);
    if (open !== undefined && known(Number(open))) this.sayGroup(Number(open));
    if (this.levels) this.levels.value = kindOf(this.model.data.groups, this.state.folded);
    const sight = sightOf(state["at"]);
    if (sight) this.canvas.sight = sight;
  }

  key(event: KeyboardEvent): void {
    const command = this.commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  }

  openTimeline(): void {
    const { bus } = this.context;
    if (this.selected < 0 || !bus.has("timeline")) return;
    const members = this.shown.members[this.selected] ?? [];
    bus.open("timeline", [...new Set(members.map((member) => this.model.told(member)))], this);
  }

  isFolded(group: number): boolean {
    return this.state.folded.has(group);
  }

  find(): void {
    this.search.field.focus();
  }
}
