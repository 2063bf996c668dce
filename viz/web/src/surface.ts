// A canvas that is as sharp as the screen and draws once per frame at most.

import { h } from "./dom";
import { onTheme } from "./theme";

export class Surface {
  readonly canvas = h("canvas", { "aria-hidden": "true" });
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;
  private reserved = 0; // pixels of the host's right side that are not drawn on
  private waiting = false;
  ratio = 1; // pixels of the canvas per pixel of the page

  constructor(
    readonly host: HTMLElement,
    private readonly paint: (context: CanvasRenderingContext2D) => void,
    private readonly resized: () => void = () => {},
  ) {
    this.context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    host.append(this.canvas);
    new ResizeObserver(() => this.fit()).observe(host);
    onTheme(() => this.redraw());
  }

  /** Leave some of the host's right side to something else. */
  reserve(pixels: number): void {
    if (pixels === this.reserved) return;
    this.reserved = pixels;
    this.fit();
  }

  /** Take the size of the host; drawing has to follow at once, or the canvas flashes. */
  fit(): void {
    const { clientHeight } = this.host;
    const clientWidth = this.host.clientWidth - this.reserved;
    const ratio = Math.min(3, devicePixelRatio || 1);
    if (clientWidth <= 0 || !clientHeight) return;
    if (clientWidth === this.width && clientHeight === this.height && ratio === this.ratio) return;
    [this.width, this.height, this.ratio] = [clientWidth, clientHeight, ratio];
    this.canvas.style.width = `${clientWidth}px`;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.resized();
    this.now();
  }

  redraw(): void {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.now();
    });
  }

  private now(): void {
    if (!this.width) return;
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.paint(this.context);
  }
}

/** Whether the page lies in a frame, where wheels belong to the page around until it is used. */
export function wheelIsOurs(event: WheelEvent, host: HTMLElement): boolean {
  return (
    window === window.top || event.ctrlKey || event.metaKey || host.contains(document.activeElement)
  );
}

/** Wheel steps as a factor of zoom. */
export function wheelFactor(event: WheelEvent): number {
  const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? 300 : 1;
  return Math.exp(
    -Math.max(-120, Math.min(120, event.deltaY * unit)) * (event.ctrlKey ? 0.008 : 0.0025),
  );
}

/** Drag with a pointer; a press that does not move is a click. */
export function onDrag(
  element: HTMLElement,
  drag: (dx: number, dy: number, event: PointerEvent) => void,
  click: (event: PointerEvent) => void,
  dragged: () => void = () => {},
): void {
  let last: { x: number; y: number } | null = null;
  let moved = 0;
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    last = { x: event.clientX, y: event.clientY };
    moved = 0;
    element.setPointerCapture(event.pointerId);
  });
  element.addEventListener("pointermove", (event) => {
    if (!last) return;
    const [dx, dy] = [event.clientX - last.x, event.clientY - last.y];
    moved += Math.abs(dx) + Math.abs(dy);
    last = { x: event.clientX, y: event.clientY };
    if (moved > 3) drag(dx, dy, event);
  });
  element.addEventListener("pointerup", (event) => {
    if (last && moved <= 3) click(event);
    else if (last) dragged();
    last = null;
  });
  element.addEventListener("pointercancel", () => (last = null));
}
