// Memory over time, a stack of kinds per device, and what the peak is made of.

import type { Context, Panel } from "./bus";
import type { DeviceMemory, MemoryData } from "./data";
import { h } from "./dom";
import { bytes, nanoseconds } from "./format";
import { Surface } from "./surface";
import { TableView } from "./table";
import { colour } from "./theme";

const LEFT = 72;
const BOTTOM = 24;
const TOP = 22;

export function memoryView(data: MemoryData, context: Context): Panel {
  const kinds = [...new Set(data.devices.flatMap((device) => Object.keys(device.kinds)))];
  const charts = data.devices.map((device) => new MemoryChart(device, kinds));
  const legend = h(
    "ul",
    { class: "legend", "aria-label": "Legend" },
    kinds.map((kind, number) =>
      h(
        "li",
        {},
        h("i", {
          class: `bar-part ${number % 2 ? "hatched" : ""}`,
          style: `--part:var(--part-${number})`,
        }),
        kind,
      ),
    ),
    data.devices.some((device) => device.reserved)
      ? h("li", {}, h("i", { class: "reserved" }), "reserved")
      : null,
  );
  const sections = data.devices.map((device, number) => {
    const total = device.peak.bytes || 1;
    const table = new TableView(
      {
        type: "table",
        title: `Peak of ${device.name}`,
        notes: [],
        columns: [
          { label: "variable", unit: "text" },
          { label: "kind", unit: "text" },
          { label: "bytes", unit: "bytes" },
          { label: "share", unit: "fraction" },
        ],
        rows: device.peak.parts.map(([name, kind, size]) => [name, kind, size, size / total]),
        sort: [2, "down"],
        bars: [2],
        file: `peak-${device.name.replace(/\W+/g, "-")}.csv`,
      },
      context,
    );
    const words = `${device.name}: peak ${bytes(device.peak.bytes)} at ${nanoseconds(device.peak.time)}, ${device.peak.parts.length} variables`;
    return h(
      "section",
      {},
      h("h3", {}, words),
      charts[number]?.element,
      h(
        "details",
        { open: number === 0 },
        h("summary", {}, "What the peak is made of"),
        table.element,
      ),
    );
  });
  return {
    element: h(
      "div",
      { class: "page-text wide" },
      h("h2", {}, data.title),
      data.notes.map((note) => h("p", { class: "note" }, note)),
      legend,
      sections,
    ),
    reveal: () => charts.forEach((chart) => chart.redraw()),
  };
}

class MemoryChart {
  readonly element = h("div", { class: "memory-chart", tabindex: 0, role: "img" });
  private readonly surface: Surface;
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly most: number;
  private readonly span: [number, number];
  private at = -1; // position of the time under the pointer

  constructor(
    private readonly device: DeviceMemory,
    private readonly kinds: string[],
  ) {
    const { times, peak } = device;
    this.span = [times[0] ?? 0, times[times.length - 1] ?? 1];
    this.most =
      Math.max(peak.bytes, device.reserved?.reduce((a, b) => Math.max(a, b), 0) ?? 0, 1) * 1.08;
    this.element.setAttribute(
      "aria-label",
      `Memory of ${device.name} over time; peak ${bytes(peak.bytes)} at ${nanoseconds(peak.time)}. Left and right arrow read values.`,
    );
    this.surface = new Surface(this.element, (context) => this.paint(context));
    this.element.append(this.tip);
    this.element.addEventListener("pointermove", (event) => {
      const x = event.clientX - this.element.getBoundingClientRect().left;
      this.read(this.position(this.timeAt(x)));
    });
    this.element.addEventListener("pointerleave", () => this.read(-1));
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      event.preventDefault();
      const by = event.key === "ArrowRight" ? 1 : -1;
      this.read(Math.max(0, Math.min(times.length - 1, this.at + by)));
    });
  }

  redraw(): void {
    this.surface.redraw();
  }

  private x(time: number): number {
    const [from, to] = this.span;
    return LEFT + ((time - from) / (to - from || 1)) * (this.surface.width - LEFT - 12);
  }

  private y(value: number): number {
    return (
      this.surface.height - BOTTOM - (value / this.most) * (this.surface.height - BOTTOM - TOP)
    );
  }

  private timeAt(x: number): number {
    const [from, to] = this.span;
    return from + ((x - LEFT) / (this.surface.width - LEFT - 12)) * (to - from);
  }

  /** Last time that is not after the given one. */
  private position(time: number): number {
    const { times } = this.device;
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((times[middle] as number) <= time) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  private read(position: number): void {
    this.at = position;
    this.tip.hidden = position < 0;
    if (position >= 0) {
      const { device } = this;
      const time = device.times[position] as number;
      const values = this.kinds.map((kind) => [kind, device.kinds[kind]?.[position] ?? 0] as const);
      const total = values.reduce((sum, [, value]) => sum + value, 0);
      this.tip.replaceChildren(
        h("b", {}, `${bytes(total)} at ${nanoseconds(time)}`),
        ...values
          .filter(([, value]) => value)
          .reverse()
          .map(([kind, value]) => h("div", {}, `${kind}: ${bytes(value)}`)),
      );
      this.tip.style.left = `${Math.min(this.x(time) + 12, this.surface.width - this.tip.offsetWidth - 8)}px`;
      this.tip.style.top = `${TOP}px`;
    }
    this.redraw();
  }

  private paint(context: CanvasRenderingContext2D): void {
    this.grid(context);
    const { device } = this;
    let below = new Float64Array(device.times.length);
    this.kinds.forEach((kind, number) => {
      const values = device.kinds[kind];
      if (!values) return;
      const above = below.map((value, k) => value + (values[k] ?? 0));
      this.area(context, below, above, number);
      below = above;
    });
    if (device.reserved)
      this.line(context, Float64Array.from(device.reserved), [6, 4], colour("text"));
    this.line(context, below, [], colour("text"));
    this.peak(context);
    if (this.at >= 0) {
      context.fillStyle = colour("accent");
      context.fillRect(
        this.x(device.times[this.at] as number) - 0.5,
        TOP,
        1,
        this.surface.height - BOTTOM - TOP,
      );
    }
  }

  private grid(context: CanvasRenderingContext2D): void {
    const { width, height } = this.surface;
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.textBaseline = "middle";
    for (let k = 0; k <= 3; k++) {
      const value = (this.most * k) / 3;
      context.fillStyle = colour("grid");
      context.fillRect(LEFT, Math.round(this.y(value)), width - LEFT - 12, 1);
      context.fillStyle = colour("faint-text");
      context.textAlign = "right";
      context.fillText(bytes(value), LEFT - 8, this.y(value));
    }
    const [from, to] = this.span;
    context.textAlign = "center";
    for (let k = 0; k <= 4; k++) {
      const time = from + ((to - from) * k) / 4;
      const x = Math.min(Math.max(this.x(time), LEFT + 16), width - 36);
      context.fillText(nanoseconds(Math.round(time)), x, height - 9);
    }
  }

  /** Steps of values as a path; thousands of steps within a pixel become its extremes. */
  private steps(context: CanvasRenderingContext2D, values: Float64Array, backwards: boolean): void {
    const { times } = this.device;
    const total = times.length;
    for (let k = 0; k < total; k++) {
      const at = backwards ? total - 1 - k : k;
      const [left, right] = [this.x(times[at] as number), this.x(times[at + 1] ?? this.span[1])];
      const y = this.y(values[at] as number);
      context.lineTo(backwards ? right : left, y);
      context.lineTo(backwards ? left : right, y);
    }
  }

  private area(
    context: CanvasRenderingContext2D,
    below: Float64Array,
    above: Float64Array,
    number: number,
  ): void {
    context.beginPath();
    this.steps(context, above, false);
    this.steps(context, below, true);
    context.closePath();
    context.globalAlpha = 0.75;
    context.fillStyle =
      number % 2
        ? (hatch(context, colour(`part-${number % 8}`)) ?? "")
        : colour(`part-${number % 8}`);
    context.fill();
    context.globalAlpha = 1;
  }

  private line(
    context: CanvasRenderingContext2D,
    values: Float64Array,
    dash: number[],
    stroke: string,
  ): void {
    context.beginPath();
    this.steps(context, values, false);
    context.setLineDash(dash);
    context.strokeStyle = stroke;
    context.lineWidth = 1.2;
    context.stroke();
    context.setLineDash([]);
  }

  private peak(context: CanvasRenderingContext2D): void {
    const { time, bytes: size } = this.device.peak;
    const [x, y] = [this.x(time), this.y(size)];
    context.fillStyle = colour("critical");
    context.beginPath();
    context.moveTo(x, y - 1);
    context.lineTo(x - 5, y - 9);
    context.lineTo(x + 5, y - 9);
    context.fill();
    context.textAlign = x > this.surface.width - 140 ? "right" : "left";
    context.fillStyle = colour("text");
    context.fillText(
      `peak ${bytes(size)}`,
      x + (context.textAlign === "right" ? -9 : 9),
      Math.max(8, y - 8),
    );
  }
}

/** Stripes, so that neighbours differ by more than colour. */
function hatch(context: CanvasRenderingContext2D, stroke: string): CanvasPattern | null {
  const tile = h("canvas", { width: 8, height: 8 });
  const pen = tile.getContext("2d") as CanvasRenderingContext2D;
  pen.fillStyle = stroke;
  pen.fillRect(0, 0, 8, 8);
  pen.strokeStyle = colour("page");
  pen.lineWidth = 1.4;
  pen.beginPath();
  for (const shift of [-8, 0, 8]) {
    pen.moveTo(shift, 8);
    pen.lineTo(shift + 8, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}
