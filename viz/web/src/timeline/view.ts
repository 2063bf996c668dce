// The timeline: what ran when, zoomed and panned, linked with the graph.

import type { Context, Panel } from "../bus";
import type { TimelineData } from "../data";
import { checkbox, h } from "../dom";
import { moment, nanoseconds } from "../format";
import { SearchList } from "../list";
import { frame, helpText, roleLegend, zoomButtons } from "../panel";
import { Surface, onDrag, wheelFactor, wheelIsOurs } from "../surface";
import { SIGNS } from "../theme";
import { sliceDetails } from "./details";
import { TimelineModel } from "./model";
import { OVERVIEW, Overview } from "./overview";
import { GUTTER, type Picture, RULER, paintTimeline, plan, rowAt, rowTop } from "./paint";
import { TimeWindow } from "../window";

export class TimelineView implements Panel {
  readonly element: HTMLElement;
  readonly model: TimelineModel;
  readonly picture: Picture;
  private readonly host = h("div", { class: "canvas", tabindex: 0, role: "application" });
  private readonly surface: Surface;
  private readonly side = h("aside", {
    class: "details",
    "aria-label": "Details of the selection",
    hidden: true,
  });
  private readonly summary = h("p", { class: "summary", role: "status" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly search: SearchList;
  private inOverview = false; // whether the pointer was pressed there

  constructor(
    data: TimelineData,
    private readonly context: Context,
  ) {
    this.model = new TimelineModel(data);
    const window = new TimeWindow(...data.span);
    const typical = this.model.typicalStep();
    const margin = typical ? (typical.to - typical.from) * 0.04 : 0;
    if (typical) window.show(typical.from - margin, typical.to + margin);
    else window.all();
    this.picture = {
      model: this.model,
      plan: plan(this.model),
      window,
      scroll: 0,
      width: 0,
      height: 0,
      selected: -1,
      marked: null,
      critical: false,
      overview: new Overview(this.model),
    };
    this.surface = new Surface(this.host, (canvas) => this.paint(canvas));
    this.search = this.makeSearch();
    this.element = this.build();
    this.listen();
    context.bus.listen((nodes, origin) => origin !== this && this.showNodes(nodes));
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
    const tools: HTMLElement[] = [];
    if (data.critical.length) {
      tools.push(
        checkbox("Critical path", false, (on) => {
          this.picture.critical = on;
          this.surface.redraw();
        }).element,
      );
    }
    const zoom = (factor: number): void => {
      window.zoom(factor, (window.from + window.to) / 2);
      this.moved();
    };
    tools.push(zoomButtons(zoom, () => this.fit()));
    this.host.setAttribute(
      "aria-label",
      `Timeline ${data.title}. w and s zoom, a and d move, comma and full stop go from slice to slice. The list of slices has the same content.`,
    );
    this.host.append(this.tip);
    const used = new Set(data.slices.role.map((role) => data.roles[role] ?? ""));
    const roles = roleLegend(used, this.context.roles);
    const legend = h("ul", { class: "legend", "aria-label": "Legend" }, roles);
    this.moved();
    return frame({
      notes: data.notes,
      tools,
      legend,
      summary: this.summary,
      left: this.search.element,
      main: this.host,
      right: this.side,
      help: helpText("timeline"),
    });
  }

  private makeSearch(): SearchList {
    const { model } = this;
    return new SearchList({
      noun: "slice",
      hint: "name, role, device, step; /regular expression/",
      total: () => model.total,
      text: (slice) =>
        `${model.name(slice)}\n${model.role(slice)}\n${model.trackOf(slice).group}\n${model.trackOf(slice).name}\nstep ${model.step(slice)}`.toLowerCase(),
      entry: (slice) => ({
        title: model.name(slice),
        detail: `${model.trackOf(slice).group} · ${nanoseconds(model.duration(slice))} at ${model.when(slice)}`,
        sign: SIGNS[model.role(slice)] ?? "",
        role: model.role(slice),
      }),
      choose: (slice) => this.pick(slice, true),
      found: (hits) => {
        this.picture.marked = hits;
        this.surface.redraw();
      },
    });
  }

  private paint(canvas: CanvasRenderingContext2D): void {
    this.picture.width = this.surface.width;
    this.picture.height = this.surface.height;
    this.scrollTo(this.picture.scroll);
    paintTimeline(canvas, this.picture);
  }

  private scrollTo(y: number): void {
    const most = Math.max(0, this.picture.plan.height + RULER - this.surface.height);
    this.picture.scroll = Math.max(0, Math.min(most, y));
  }

  /** The numbers of all steps, which are counted from 0 everywhere. */
  private numbers(): string {
    const { steps } = this.model;
    return `${steps[0]?.number ?? 0} to ${steps[steps.length - 1]?.number ?? 0}`;
  }

  private moved(): void {
    const { window } = this.picture;
    const seen = this.model.steps.filter((step) => step.to > window.from && step.from < window.to);
    const [first, last] = [seen[0]?.number, seen[seen.length - 1]?.number];
    const steps =
      first === undefined
        ? ""
        : `, ${first === last ? `step ${first}` : `steps ${first} to ${last}`} of ${this.numbers()}`;
    this.summary.textContent = `${nanoseconds(window.span)} in view from ${moment(Math.max(0, window.from), window.span / 50)}${steps}`;
    this.surface.redraw();
  }

  private fit(): void {
    this.picture.window.all();
    this.moved();
  }

  private timeAt(px: number): number {
    const { window, width } = this.picture;
    return window.from + ((px - GUTTER) / (width - GUTTER)) * window.span;
  }

  private sliceAt(px: number, py: number): number {
    const row = this.model.rows[rowAt(this.picture.plan, this.picture.scroll, py)];
    if (!row || px < GUTTER) return -1;
    return this.model.at(row, this.timeAt(px), (3 / this.picture.width) * this.picture.window.span);
  }

  private listen(): void {
    const local = (event: MouseEvent): [number, number] => {
      const box = this.host.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    this.host.addEventListener(
      "wheel",
      (event) => {
        if (!wheelIsOurs(event, this.host)) return;
        event.preventDefault();
        const { window, width } = this.picture;
        if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          window.pan((event.deltaX + (event.shiftKey ? event.deltaY : 0)) / width);
        } else window.zoom(wheelFactor(event), this.timeAt(local(event)[0]));
        this.moved();
      },
      { passive: false },
    );
    this.host.addEventListener(
      "pointerdown",
      (event) => (this.inOverview = local(event)[1] < OVERVIEW),
    );
    onDrag(
      this.host,
      (dx, dy, event) => {
        if (this.inOverview) return this.jump(local(event)[0]);
        this.picture.window.pan(-dx / (this.picture.width - GUTTER));
        this.scrollTo(this.picture.scroll - dy);
        this.tip.hidden = true;
        this.moved();
      },
      (event) => {
        this.host.focus({ preventScroll: true });
        if (this.inOverview) return this.jump(local(event)[0]);
        this.pick(this.sliceAt(...local(event)), false);
      },
    );
    this.host.addEventListener("dblclick", () => this.zoomToSelection());
    this.host.addEventListener(
      "pointermove",
      (event) => event.buttons || this.hover(...local(event)),
    );
    this.host.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.host.addEventListener("keydown", (event) => this.key(event));
  }

  /** Move the window to a place of the overview. */
  private jump(px: number): void {
    const { window, width, overview } = this.picture;
    const middle = overview.time((px - GUTTER) / (width - GUTTER));
    window.show(middle - window.span / 2, middle + window.span / 2);
    this.moved();
  }

  private hover(px: number, py: number): void {
    const slice = this.sliceAt(px, py);
    this.host.style.cursor = slice >= 0 ? "pointer" : "grab";
    this.tip.hidden = slice < 0;
    if (slice < 0) return;
    const { model } = this;
    this.tip.replaceChildren(
      h("b", {}, model.name(slice)),
      h("div", {}, `${nanoseconds(model.duration(slice))} from ${model.when(slice)}`),
      h(
        "div",
        {},
        `${this.context.roles[model.role(slice)] ?? model.role(slice)} · ${model.trackOf(slice).group} · step ${model.step(slice)}`,
      ),
    );
    const { width, height } = this.surface;
    this.tip.style.left = `${Math.min(px + 14, width - this.tip.offsetWidth - 8)}px`;
    this.tip.style.top = `${Math.min(py + 16, height - this.tip.offsetHeight - 8)}px`;
  }

  private pick(slice: number, show: boolean): void {
    const node = slice < 0 ? null : this.model.node(slice);
    const same = node === null ? [] : (this.model.byNode.get(node) ?? []);
    this.picture.marked = same.length > 1 ? new Set(same) : null;
    this.select(slice, show);
    this.context.bus.select(node === null ? [] : [node], this);
  }

  private select(slice: number, show: boolean): void {
    this.picture.selected = slice;
    if (slice >= 0) {
      this.search.mark(slice);
      if (show) this.bringIntoView(slice);
    }
    this.side.hidden = slice < 0;
    if (slice >= 0) {
      const { bus, roles } = this.context;
      const close = h(
        "button",
        { class: "close", "aria-label": "Close details", onclick: () => this.pick(-1, false) },
        "×",
      );
      const content = sliceDetails(this.model, slice, {
        roles,
        choose: (other) => this.pick(other, true),
        graph: bus.has("graph") ? (node) => bus.open("graph", [node], this) : null,
      });
      this.side.replaceChildren(h("div", { "aria-live": "polite" }, close, content));
    }
    this.surface.redraw();
  }

  private bringIntoView(slice: number): void {
    const { model, picture } = this;
    const { window } = picture;
    const [start, stop] = [model.start(slice), model.stop(slice)];
    const wide = ((stop - start) / window.span) * (picture.width || 1000);
    if (wide < 12) window.show(start - (stop - start) * 30, stop + (stop - start) * 30);
    else if (start < window.from || stop > window.to) {
      const middle = (start + stop) / 2;
      window.show(middle - window.span / 2, middle + window.span / 2);
    }
    const top = rowTop(picture.plan, model.rowOf[slice] as number);
    const room = Math.max(100, this.surface.height - RULER - 40);
    if (top < picture.scroll || top > picture.scroll + room) this.scrollTo(top - room / 2);
    this.moved();
  }

  private zoomToSelection(): void {
    const { selected } = this.picture;
    if (selected < 0) return;
    const [start, stop] = [this.model.start(selected), this.model.stop(selected)];
    const margin = (stop - start) * 0.1 + 10;
    this.picture.window.show(start - margin, stop + margin);
    this.moved();
  }

  /** The slice before or after in the same row. */
  private go(by: number): void {
    const { selected } = this.picture;
    if (selected < 0) {
      const first = this.model.rows.find((row) => row.slices.length)?.slices[0];
      return this.pick(first ?? -1, true);
    }
    const { slices } = this.model.rows[this.model.rowOf[selected] as number] as {
      slices: Int32Array;
    };
    const next = slices[slices.indexOf(selected) + by];
    if (next !== undefined) this.pick(next, true);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { window } = this.picture;
    const middle = (window.from + window.to) / 2;
    const zoomIn = (): void => window.zoom(1.5, middle);
    const zoomOut = (): void => window.zoom(1 / 1.5, middle);
    const commands: Record<string, () => void> = {
      w: zoomIn,
      s: zoomOut,
      ArrowUp: zoomIn,
      ArrowDown: zoomOut,
      "+": zoomIn,
      "=": zoomIn,
      "-": zoomOut,
      a: () => window.pan(-0.15),
      d: () => window.pan(0.15),
      ArrowLeft: () => window.pan(-0.15),
      ArrowRight: () => window.pan(0.15),
      ",": () => this.go(-1),
      ".": () => this.go(1),
      PageDown: () => this.scrollTo(this.picture.scroll + 200),
      PageUp: () => this.scrollTo(this.picture.scroll - 200),
      "0": () => window.all(),
      f: () => this.zoomToSelection(),
      g: () => this.openGraph(),
      "/": () => this.search.field.focus(),
      Escape: () => this.pick(-1, false),
    };
    const command = commands[event.key];
    if (!command) return;
    event.preventDefault();
    command();
    this.moved();
  }

  private openGraph(): void {
    const node = this.picture.selected < 0 ? null : this.model.node(this.picture.selected);
    if (node !== null && this.context.bus.has("graph"))
      this.context.bus.open("graph", [node], this);
  }
}
