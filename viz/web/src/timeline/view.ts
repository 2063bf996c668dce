// The timeline: what ran when, zoomed and panned, linked with the graph.

import type { Context, Panel, State } from "../bus";
import { Controls } from "../controls";
import type { TimelineData } from "../data";
import { type Child, h } from "../dom";
import type { SearchList } from "../list";
import { frame, helpText, roleLegend } from "../panel";
import { Side } from "../side";
import { Surface } from "../surface";
import { figures } from "../link";
import { Board } from "./board";
import { commands, zoomBy } from "./commands";
import { areaDetails, seenText, sliceDetails, spanDetails } from "./details";
import { Gutter, hiddenButton } from "./gutter";
import { TimelineModel } from "./model";
import { OVERVIEW, Overview } from "./overview";
import { GUTTER, type Picture, RULER, paintPlayhead, paintTimeline, top } from "./paint";
import { type Point, onPointer, sliceAt, timeAt } from "./pointer";
import { sliceList } from "./search";
import { Tip } from "./tip";
import { timelineTools } from "./tools";
import type { Bar } from "./tracks";
import { TimeWindow } from "../window";

const OPENING = 1000; // pixels that a window has at least, when it opens
const SNAP = 4; // pixels from the edge within which an area begins at the edge

export class TimelineView implements Panel {
  readonly element: HTMLElement;
  readonly model: TimelineModel;
  readonly picture: Picture;
  private readonly host = h("div", { class: "canvas", tabindex: 0, role: "application" });
  private readonly surface: Surface;
  private readonly side = new Side(() => this.pick(-1, false));
  private readonly summary = h("p", { class: "summary", role: "status" });
  private readonly tip: Tip;
  private readonly search: SearchList;
  private readonly controls: Controls;
  readonly board: Board;
  private readonly gutter: Gutter;
  private readonly hidden = h("span");
  private readonly opening: [number, number];
  private readonly layers: string; // what is shown of them at first
  private pointer: Point | null = null;
  private readonly commands: Record<string, () => void>;

  constructor(
    data: TimelineData,
    private readonly context: Context,
  ) {
    this.model = new TimelineModel(data);
    const window = new TimeWindow(...data.span);
    this.board = new Board(this.model, window);
    this.controls = new Controls(context.changed);
    this.tip = new Tip(this.model, context.roles);
    this.gutter = this.makeGutter();
    const typical = this.model.typicalStep();
    const margin = typical ? (typical.to - typical.from) * 0.04 : 0;
    if (typical) window.show(typical.from - margin, typical.to + margin);
    else window.all();
    this.opening = [window.from, window.to];
    this.layers = this.model.legible(window.from, window.to, OPENING) ? "" : "blocks";
    this.board.arrange({ layers: this.layers });
    this.picture = {
      model: this.model,
      tracks: this.board.tracks,
      area: null,
      window,
      scroll: 0,
      width: 0,
      height: 0,
      selected: -1,
      marked: null,
      critical: false,
      overview: new Overview(this.model),
    };
    this.commands = commands(this);
    this.surface = new Surface(this.host, (canvas) => this.paint(canvas));
    this.search = this.makeSearch();
    this.element = this.build();
    this.listen();
    context.bus.listen((nodes, origin) => origin !== this && this.showNodes(nodes));
    context.playhead?.listen(() => this.follow());
    context.bus.onStep((number) => {
      const step = this.model.steps.find((one) => one.number === number);
      if (step) this.zoomTo(step);
    });
    if (context.bus.nodes.length) this.showNodes(context.bus.nodes);
  }

  reveal(): void {
    this.surface.redraw();
  }

  /** Select the first slice of some nodes and mark all of theirs. */
  showNodes(nodes: readonly number[]): void {
    const slices = nodes.flatMap((node) => this.model.byNode.get(node) ?? []);
    this.picture.marked = slices.length ? new Set(slices) : null;
    this.select(slices[0] ?? -1, true);
    if (nodes.length && !slices.length)
      this.summary.textContent = "The selected operator has no slice in this trace.";
  }

  private build(): HTMLElement {
    const { data } = this.model;
    const { window } = this.picture;
    const tools = timelineTools(this.model, this.controls, this.layers, this.hidden, {
      critical: (on) => {
        this.picture.critical = on;
        this.surface.redraw();
      },
      arrange: (chosen) => {
        if (chosen.layers !== undefined && this.model.isSpan(this.picture.selected))
          this.pick(-1, false);
        this.board.arrange(chosen);
        this.arranged();
      },
      zoom: (factor) => {
        zoomBy(window, factor);
        this.moved();
      },
      fit: () => this.fit(),
    });
    this.host.setAttribute(
      "aria-label",
      `Timeline ${data.title}. w and s zoom, a and d move, comma and full stop go from slice to slice, m adds up the selected time. The list of slices has the same content.`,
    );
    this.host.append(this.gutter.element, this.tip.element);
    const used = new Set(data.slices.role.map((role) => data.roles[role] ?? ""));
    const roles = roleLegend(used, this.context.roles);
    const legend = h("ul", { class: "legend", "aria-label": "Legend" }, roles);
    this.arranged();
    return frame({
      notes: data.notes,
      tools,
      legend,
      summary: this.summary,
      left: this.search.element,
      main: this.host,
      right: this.side.element,
      help: helpText("timeline"),
    });
  }

  private makeSearch(): SearchList {
    const list = sliceList(
      this.model,
      (slice) => this.pick(slice, true),
      (hits) => {
        this.picture.marked = hits;
        this.surface.redraw();
      },
    );
    this.controls.adopt("find", list.field);
    return list;
  }

  private makeGutter(): Gutter {
    const { board } = this;
    const change = (what: () => void): void => {
      what();
      this.arranged();
    };
    return new Gutter(this.model, {
      pin: (key) => change(() => board.toggle("pinned", key)),
      hide: (key) => change(() => board.set("hidden", [key], true)),
      thin: (keys, thin) => change(() => board.set("thin", keys, thin)),
      open: (group) => change(() => board.set("open", [group], true)),
    });
  }

  /** Tracks stand elsewhere. */
  arranged(): void {
    const { board, picture } = this;
    picture.tracks = board.tracks;
    this.gutter.draw(picture.tracks);
    const button = hiddenButton(board.choices.hidden.size, () => {
      board.showAll();
      this.arranged();
    });
    this.hidden.replaceChildren(...(button ? [button] : []));
    this.scrollTo(picture.scroll);
    this.moved();
  }

  private paint(canvas: CanvasRenderingContext2D): void {
    this.picture.width = this.surface.width;
    this.picture.height = this.surface.height;
    this.scrollTo(this.picture.scroll);
    paintTimeline(canvas, this.picture);
    paintPlayhead(canvas, this.picture, this.context.playhead?.time ?? null);
    if (this.tip.isShown) this.hover(this.pointer); // what it speaks of may have moved
  }

  /** Keep the playhead in view. */
  private follow(): void {
    const time = this.context.playhead?.time ?? null;
    const { window } = this.picture;
    if (time !== null && (time < window.from || time > window.to)) {
      window.show(time - window.span * 0.1, time + window.span * 0.9);
      return this.moved();
    }
    this.surface.redraw();
  }

  scrollTo(y: number): void {
    const { tracks } = this.picture;
    const most = Math.max(0, tracks.pinnedHeight + tracks.height + RULER - this.surface.height);
    this.picture.scroll = Math.max(0, Math.min(most, y));
    this.gutter.scroll(this.picture.scroll);
  }

  private moved(): void {
    const { window } = this.picture;
    if (this.board.tracks !== this.picture.tracks) return this.arranged();
    this.summary.textContent = seenText(this.model, window, this.board.seen());
    this.surface.redraw();
    this.context.changed();
  }

  private fit(): void {
    this.picture.window.all();
    this.moved();
  }

  private listen(): void {
    onPointer(this.host, this.picture, {
      moved: () => this.moved(),
      scroll: (y) => this.scrollTo(y),
      click: (at) => this.pick(sliceAt(this.picture, at), false),
      open: () => this.zoomToSelection(),
      mark: (from, to, everywhere) => this.mark(from, to, everywhere),
      marked: () => this.sum(this.board.area),
      hover: (at) => this.hover(at),
    });
  }

  /** Select the area between two points, or what was then on all tracks. */
  private mark(from: Point, to: Point, everywhere: boolean): void {
    const { board, picture } = this;
    const [high, low] = [Math.min(from.y, to.y), Math.max(from.y, to.y)];
    const isOf = (bar: Bar): boolean => {
      const y = top(picture, { y: bar.y, bar });
      return everywhere || (y <= low && y + bar.height >= high);
    };
    const at = ({ x }: Point): number =>
      timeAt(picture, x < GUTTER + SNAP ? GUTTER : Math.min(picture.width, x));
    board.select(at(from), at(to), isOf);
    picture.area = board.area;
    this.surface.redraw();
  }

  /** Say what happened in an area. */
  sum(area: Board["area"]): void {
    this.board.area = this.picture.area = area;
    if (area)
      this.side.say(areaDetails(this.model, area, this.context.roles, () => this.zoomTo(area)));
    else this.side.hide();
    this.context.changed();
    this.surface.redraw();
  }

  private hover(at: Point | null): void {
    this.pointer = at;
    const slice = at ? sliceAt(this.picture, at) : -1;
    const above = at !== null && at.y < RULER && at.y >= OVERVIEW;
    this.host.style.cursor = slice >= 0 ? "pointer" : above ? "col-resize" : "grab";
    this.tip.show(slice, at, this.surface);
  }

  pick(slice: number, show: boolean): void {
    const { spans } = this.model;
    if (spans && this.model.isSpan(slice)) {
      this.picture.marked = null;
      this.select(slice, show);
      return this.context.bus.select(spans.nodes(slice), this);
    }
    const node = slice < 0 ? null : this.model.node(slice);
    const same = node === null ? [] : (this.model.byNode.get(node) ?? []);
    this.picture.marked = same.length > 1 ? new Set(same) : null;
    this.select(slice, show);
    this.context.bus.select(node === null ? [] : [node], this);
  }

  private select(slice: number, show: boolean): void {
    this.picture.selected = slice;
    this.board.area = this.picture.area = null;
    if (slice >= 0 && show && !this.board.isSeen(slice)) {
      this.board.open(slice);
      this.arranged();
    }
    if (slice >= 0) {
      if (!this.model.isSpan(slice)) this.search.mark(slice);
      if (show) this.bringIntoView(slice);
    }
    if (slice >= 0) this.side.say(this.described(slice));
    else this.side.hide();
    this.surface.redraw();
    this.context.changed();
  }

  private described(slice: number): Child[] {
    const { bus, roles } = this.context;
    const graph = bus.has("graph") ? (nodes: number[]) => bus.open("graph", nodes, this) : null;
    const choose = (other: number): void => this.pick(other, true);
    if (!this.model.isSpan(slice)) return sliceDetails(this.model, slice, { roles, choose, graph });
    const { board } = this;
    return spanDetails(this.model, slice, {
      roles,
      graph,
      zoom: () => this.zoomToSelection(),
      isOpen: board.isOpen(slice),
      open: (on) => {
        board.fold(slice, !on);
        this.arranged();
        this.side.say(this.described(slice));
      },
    });
  }

  private bringIntoView(slice: number): void {
    const { model, picture } = this;
    const { window } = picture;
    const [start, stop] = [model.start(slice), model.stop(slice)];
    window.reveal(start, stop, picture.width || OPENING);
    this.moved(); // first: in other steps other tracks are seen
    const row = picture.tracks.rowOf(slice);
    if (!row || row.bar.pinned) return;
    const room = Math.max(100, this.surface.height - RULER - picture.tracks.pinnedHeight - 40);
    if (row.y < picture.scroll || row.y > picture.scroll + room) this.scrollTo(row.y - room / 2);
    this.surface.redraw();
  }

  zoomToSelection(): void {
    const { selected, area } = this.picture;
    if (area) this.zoomTo(area);
    else if (selected >= 0)
      this.zoomTo({ from: this.model.start(selected), to: this.model.stop(selected) });
  }

  private zoomTo({ from, to }: { from: number; to: number }): void {
    const margin = (to - from) * 0.1 + 10;
    this.picture.window.show(from - margin, to + margin);
    this.moved();
  }

  /** Let the operators of the selected layer be seen, or not any more. */
  unfold(): void {
    const { selected } = this.picture;
    if (!this.model.isSpan(selected)) return;
    this.board.fold(selected, this.board.isOpen(selected));
    this.arranged();
    this.side.say(this.described(selected));
  }

  key(event: KeyboardEvent): void {
    const command = this.commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
    this.moved();
  }

  link(): State {
    const { window, scroll, selected } = this.picture;
    const found = { ...this.controls.link(), ...this.board.link() };
    const seen = [window.from, window.to].map(Math.round);
    if (`${seen}` !== `${this.opening.map(Math.round)}`) found["at"] = `${seen}`;
    if (scroll) found["scroll"] = String(Math.round(scroll));
    if (selected >= 0) found["slice"] = String(selected);
    return found;
  }

  restore(state: State): void {
    const slice = Number(state["slice"] ?? -1);
    this.controls.restore(state);
    this.board.restore(state);
    if (this.model.has(slice)) this.select(slice, false);
    const [from, to] = figures(state["at"], 2) ?? this.opening;
    this.picture.window.show(from as number, to as number);
    this.picture.scroll = Number(state["scroll"] ?? 0) || 0;
    this.arranged();
    if (this.board.area) this.sum(this.board.area);
  }

  find(): void {
    this.search.field.focus();
  }

  openGraph(): void {
    const node = this.picture.selected < 0 ? null : this.model.node(this.picture.selected);
    if (node !== null && this.context.bus.has("graph"))
      this.context.bus.open("graph", [node], this);
  }
}
