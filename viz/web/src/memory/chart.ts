// Memory of a device over time: a stack of kinds, the work area, and the peak.

import type { DeviceMemory } from "../data";
import { h } from "../dom";
import { bytes, moment, nanoseconds, tick } from "../format";
import { Surface, onDrag, wheelFactor } from "../surface";
import { colour } from "../theme";
import { playLine } from "../play/line";
import { type TimeWindow, ticks } from "../window";

const LEFT = 72;
const BOTTOM = 24;
const TOP = 22;

export class MemoryChart {
  readonly element = h("div", { class: "memory-chart", tabindex: 0, role: "img" });
  private readonly surface: Surface;
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly most: number;
  private at = -1; // position of the time under the pointer
  private played: number | null = null; // where the playhead is

  constructor(
    private readonly device: DeviceMemory,
    private readonly looks: Record<string, string>, // of every kind, whether there is any or not
    private readonly window: TimeWindow, // shared: all devices show the same time
    private readonly moved: () => void,
  ) {
    const { peak } = device;
    this.most =
      Math.max(peak.bytes, device.work_area?.reduce((a, b) => Math.max(a, b), 0) ?? 0, 1) * 1.08;
    this.element.setAttribute(
      "aria-label",
      `Memory of ${device.name} over time; peak ${bytes(peak.bytes)} at ${nanoseconds(peak.time)}. Left and right arrow read values, w and s zoom, a and d move.`,
    );
    this.surface = new Surface(this.element, (context) => this.paint(context));
    this.element.append(this.tip);
    this.listen();
  }

  redraw(): void {
    this.surface.redraw();
  }

  /** Show the moment of the playhead, with what is alive then. */
  play(time: number | null): void {
    this.played = time;
    if (time === null) this.read(-1);
    else this.read(this.position(time));
  }

  private listen(): void {
    const { element, window } = this;
    const left = (): number => element.getBoundingClientRect().left;
    element.addEventListener("pointermove", (event) => {
      if (!event.buttons) this.read(this.position(this.timeAt(event.clientX - left())));
    });
    element.addEventListener("pointerleave", () => this.read(-1));
    element.addEventListener("keydown", (event) => this.key(event)); // of several charts, this one
    element.addEventListener(
      "wheel",
      (event) => {
        // The page around scrolls, so zooming asks for a key or for the focus.
        if (!event.ctrlKey && !event.metaKey && document.activeElement !== element) return;
        event.preventDefault();
        window.zoom(wheelFactor(event), this.timeAt(event.clientX - left()));
        this.moved();
      },
      { passive: false },
    );
    onDrag(
      element,
      (dx) => {
        window.pan(-dx / this.across());
        this.moved();
      },
      () => element.focus({ preventScroll: true }),
    );
  }

  key(event: KeyboardEvent): void {
    const { window } = this;
    const middle = (window.from + window.to) / 2;
    const last = this.device.times.length - 1;
    const commands: Record<string, () => void> = {
      ArrowLeft: () => this.read(Math.max(0, this.at - 1)),
      ArrowRight: () => this.read(Math.min(last, this.at + 1)),
      w: () => window.zoom(1.5, middle),
      s: () => window.zoom(1 / 1.5, middle),
      a: () => window.pan(-0.15),
      d: () => window.pan(0.15),
      "0": () => window.all(),
    };
    const command = commands[event.key];
    if (!command || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    command();
    this.moved();
  }

  private across(): number {
    return this.surface.width - LEFT - 12;
  }

  private x(time: number): number {
    return LEFT + ((time - this.window.from) / this.window.span) * this.across();
  }

  private y(value: number): number {
    return (
      this.surface.height - BOTTOM - (value / this.most) * (this.surface.height - BOTTOM - TOP)
    );
  }

  private timeAt(x: number): number {
    return this.window.from + ((x - LEFT) / this.across()) * this.window.span;
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
      const values = Object.keys(this.looks).map(
        (kind) => [kind, device.kinds[kind]?.[position] ?? 0] as const,
      );
      const total = values.reduce((sum, [, value]) => sum + value, 0);
      this.tip.replaceChildren(
        h("b", {}, `${bytes(total)} at ${nanoseconds(time)}`),
        ...values
          .filter(([, value]) => value)
          .reverse()
          .map(([kind, value]) => h("div", {}, `${kind}: ${bytes(value)}`)),
      );
      this.tip.style.top = `${TOP}px`;
    }
    this.redraw();
  }

  private paint(context: CanvasRenderingContext2D): void {
    if (this.at >= 0) {
      const x = this.x(this.played ?? (this.device.times[this.at] as number));
      this.tip.style.left = `${Math.min(x + 12, this.surface.width - this.tip.offsetWidth - 8)}px`;
      this.tip.hidden = x < LEFT || x > this.surface.width;
    }
    this.grid(context);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, this.across(), this.surface.height);
    context.clip();
    this.areas(context);
    if (this.played !== null) {
      const { height } = this.surface;
      playLine(context, this.x(this.played), TOP, height - BOTTOM);
    }
    context.restore();
  }

  private areas(context: CanvasRenderingContext2D): void {
    const { device } = this;
    let below = new Float64Array(device.times.length);
    Object.entries(this.looks).forEach(([kind, look], number) => {
      const values = device.kinds[kind];
      if (!values) return;
      const above = below.map((value, k) => value + (values[k] ?? 0));
      this.area(context, below, above, colour(`${look}-line`), number % 2 > 0);
      below = above;
    });
    if (device.work_area)
      this.line(context, Float64Array.from(device.work_area), [6, 4], colour("text"));
    this.line(context, below, [], colour("text"));
    this.peak(context);
    if (this.at >= 0 && this.played === null) {
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
    const step = 2 ** Math.round(Math.log2(this.most / 3));
    for (let value = 0; value <= this.most; value += step) {
      context.fillStyle = colour("grid");
      context.fillRect(LEFT, Math.round(this.y(value)), width - LEFT - 12, 1);
      context.fillStyle = colour("faint-text");
      context.textAlign = "right";
      context.fillText(tick(value, "bytes"), LEFT - 8, this.y(value));
    }
    const { times, step: apart } = ticks(this.window, this.across());
    context.textAlign = "center";
    for (const time of times) {
      const x = this.x(time);
      if (x > LEFT + 8 && x < width - 30) context.fillText(moment(time, apart), x, height - 9);
    }
  }

  /** Steps of values as a path; thousands of steps within a pixel become its extremes. */
  private steps(context: CanvasRenderingContext2D, values: Float64Array, backwards: boolean): void {
    const { times } = this.device;
    const total = times.length;
    for (let k = 0; k < total; k++) {
      const at = backwards ? total - 1 - k : k;
      const [left, right] = [
        this.x(times[at] as number),
        this.x(times[at + 1] ?? (times[at] as number)),
      ];
      const y = this.y(values[at] as number);
      context.lineTo(backwards ? right : left, y);
      context.lineTo(backwards ? left : right, y);
    }
  }

  private area(
    context: CanvasRenderingContext2D,
    below: Float64Array,
    above: Float64Array,
    fill: string,
    hatched: boolean,
  ): void {
    context.beginPath();
    this.steps(context, above, false);
    this.steps(context, below, true);
    context.closePath();
    context.globalAlpha = 0.75;
    context.fillStyle = hatched ? (hatch(context, fill) ?? "") : fill;
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
