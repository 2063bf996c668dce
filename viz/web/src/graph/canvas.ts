// The drawing of a diagram that pans, zooms and answers clicks; graph and passes share it.

import { h } from "../dom";
import { Surface, onDrag, wheelFactor, wheelIsOurs } from "../surface";
import { colour, onTheme } from "../theme";
import { Camera } from "./camera";
import type { Bracket } from "./layout";
import { type Scene, paint, visibleRows } from "./paint";

export interface Answers {
  click: (box: number) => void; // -1: beside all boxes
  open: (box: number) => void; // double click, Enter
  bracket: (bracket: Bracket) => void;
  tip: (box: number) => string[]; // lines; the first one stands out
}

const MAP_WIDTH = 120;
const MAP_HEIGHT = 170;

export class DiagramCanvas {
  readonly element = h("div", { class: "canvas", tabindex: 0, role: "application" });
  readonly camera: Camera;
  private readonly surface: Surface;
  private readonly map = h("canvas", { class: "minimap", "aria-hidden": "true" });
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly mapBoxes = h("canvas"); // the overview without the frame, drawn once per scene
  private mapDirty = true;
  private mapScale = { x: 1, y: 1 };
  private dragsMap = false;
  private fitted = false;
  private pending = -1; // box to reveal as soon as the canvas has a size

  constructor(
    public scene: Scene,
    private readonly answers: Answers,
  ) {
    this.camera = new Camera(
      () => this.scene.layout,
      () => this.surface,
    );
    this.surface = new Surface(
      this.element,
      (context) => this.paint(context),
      () => this.resized(),
    );
    this.element.append(this.map, this.tip);
    this.listen();
  }

  /** Show another diagram; `keep` is a box whose place on the screen stays the same. */
  show(scene: Scene, keep?: { from: number; to: number }): void {
    const before = this.scene.layout;
    this.scene = scene;
    if (keep) {
      const { layout } = scene;
      const { scale } = this.camera;
      this.camera.x += ((before.x[keep.from] as number) - (layout.x[keep.to] as number)) * scale;
      this.camera.y += ((before.y[keep.from] as number) - (layout.y[keep.to] as number)) * scale;
      this.camera.pan(0, 0);
    } else {
      this.camera.fit(false);
    }
    this.redraw();
  }

  /** Draw again because looks have changed, not only the camera. */
  redraw(): void {
    this.mapDirty = true;
    this.surface.redraw();
  }

  fit(whole: boolean): void {
    this.camera.fit(whole);
    this.surface.redraw();
  }

  zoom(factor: number): void {
    this.camera.zoom(factor, this.surface.width / 2, this.surface.height / 2);
    this.surface.redraw();
  }

  reveal(box: number, centre = false): void {
    if (!this.fitted) {
      this.pending = box;
      return;
    }
    const { layout } = this.scene;
    const at = [layout.x[box], layout.y[box], layout.w[box], layout.h[box]] as [
      number,
      number,
      number,
      number,
    ];
    this.camera.reveal(...at, centre);
    this.surface.redraw();
  }

  /** Pixel of the middle of a box; the tests click there. */
  pixel(box: number): { x: number; y: number } {
    const { layout } = this.scene;
    return {
      x:
        ((layout.x[box] as number) + (layout.w[box] as number) / 2) * this.camera.scale +
        this.camera.x,
      y:
        ((layout.y[box] as number) + (layout.h[box] as number) / 2) * this.camera.scale +
        this.camera.y,
    };
  }

  private resized(): void {
    if (this.fitted) return this.camera.pan(0, 0);
    this.fitted = true;
    this.camera.fit(false);
    if (this.pending >= 0) this.reveal(this.pending, true);
  }

  private listen(): void {
    const { element } = this;
    const local = (event: MouseEvent): [number, number] => {
      const box = element.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    element.addEventListener(
      "wheel",
      (event) => {
        if (!wheelIsOurs(event, element)) return;
        event.preventDefault();
        if (event.shiftKey) this.camera.pan(-event.deltaX - event.deltaY, 0);
        else this.camera.zoom(wheelFactor(event), ...local(event));
        this.surface.redraw();
      },
      { passive: false },
    );
    element.addEventListener(
      "pointerdown",
      (event) => (this.dragsMap = this.overMap(...local(event))),
    );
    onTheme(() => (this.mapDirty = true));
    onDrag(
      element,
      (dx, dy, event) => {
        if (this.dragsMap) return this.jump(event);
        this.camera.pan(dx, dy);
        this.tip.hidden = true;
        this.surface.redraw();
      },
      (event) => {
        element.focus({ preventScroll: true });
        const [x, y] = local(event);
        if (this.overMap(x, y)) return this.jump(event);
        const bracket = this.bracketAt(x, y);
        if (bracket) this.answers.bracket(bracket);
        else this.answers.click(this.boxAt(x, y));
      },
    );
    element.addEventListener("dblclick", (event) => {
      const box = this.boxAt(...local(event));
      if (box >= 0) this.answers.open(box);
    });
    element.addEventListener("pointermove", (event) => {
      if (event.buttons) return;
      const [x, y] = local(event);
      const box = this.overMap(x, y) ? -1 : this.boxAt(x, y);
      element.style.cursor = box >= 0 || this.bracketAt(x, y) ? "pointer" : "grab";
      this.hover(box, x, y);
    });
    element.addEventListener("pointerleave", () => (this.tip.hidden = true));
  }

  private hover(box: number, x: number, y: number): void {
    const lines = box < 0 ? [] : this.answers.tip(box).filter(Boolean);
    this.tip.hidden = !lines.length;
    this.tip.replaceChildren(...lines.map((line, k) => h(k ? "div" : "b", {}, line)));
    const { clientWidth, clientHeight } = this.element;
    this.tip.style.left = `${Math.min(x + 14, clientWidth - this.tip.offsetWidth - 8)}px`;
    this.tip.style.top = `${Math.min(y + 16, clientHeight - this.tip.offsetHeight - 8)}px`;
  }

  private boxAt(px: number, py: number): number {
    const { layout, look } = this.scene;
    const { x, y } = this.camera.at(px, py);
    const [first, last] = visibleRows(layout, y, y);
    for (let row = first; row < last; row++) {
      for (const box of layout.byRow[row] ?? []) {
        const [left, top] = [layout.x[box] as number, layout.y[box] as number];
        const right = left + (layout.w[box] as number);
        if (
          x >= left &&
          x <= right &&
          y >= top &&
          y <= top + (layout.h[box] as number) &&
          look(box)
        )
          return box;
      }
    }
    return -1;
  }

  private bracketAt(px: number, py: number): Bracket | null {
    const { x, y } = this.camera.at(px, py);
    const near = (b: Bracket): boolean => x > b.x - 13 && x < b.x + 4 && y > b.top && y < b.bottom;
    return this.scene.layout.brackets.find(near) ?? null;
  }

  private paint(context: CanvasRenderingContext2D): void {
    const { width, height } = this.surface;
    paint(context, this.scene, this.camera, width, height);
    this.paintMap(width, height);
  }

  private overMap(x: number, y: number): boolean {
    if (this.map.hidden) return false;
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.map;
    return (
      x >= offsetLeft &&
      y >= offsetTop &&
      x <= offsetLeft + offsetWidth &&
      y <= offsetTop + offsetHeight
    );
  }

  /** Move the view to a point of the overview. */
  private jump(event: PointerEvent): void {
    const box = this.map.getBoundingClientRect();
    const { width, height } = this.surface;
    this.camera.x = width / 2 - ((event.clientX - box.left) / this.mapScale.x) * this.camera.scale;
    this.camera.y = height / 2 - ((event.clientY - box.top) / this.mapScale.y) * this.camera.scale;
    this.camera.pan(0, 0);
    this.surface.redraw();
  }

  /** The overview, while a part of the drawing is out of view. */
  private paintMap(width: number, height: number): void {
    const { layout } = this.scene;
    const { camera, map } = this;
    const all = layout.width * camera.scale <= width && layout.height * camera.scale <= height;
    map.hidden = all || width < 560;
    if (map.hidden) return;
    // A tall graph is stretched sideways, or its overview were a thread.
    const least = Math.min(MAP_WIDTH / layout.width, MAP_HEIGHT / layout.height);
    const scale = (this.mapScale = {
      x: Math.min(MAP_WIDTH / layout.width, least * 8),
      y: Math.min(MAP_HEIGHT / layout.height, least * 8),
    });
    const ratio = Math.min(3, devicePixelRatio || 1);
    const [w, h] = [Math.max(12, layout.width * scale.x), Math.max(12, layout.height * scale.y)];
    const sized = map.width === Math.round(w * ratio) && map.height === Math.round(h * ratio);
    if (!sized || this.mapDirty) this.paintMapBoxes(w, h, ratio);
    const context = map.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, map.width, map.height);
    context.drawImage(this.mapBoxes, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const from = camera.at(0, 0);
    context.strokeStyle = colour("accent");
    context.lineWidth = 1.5;
    const [seenX, seenY] = [width / camera.scale, height / camera.scale];
    context.strokeRect(from.x * scale.x, from.y * scale.y, seenX * scale.x, seenY * scale.y);
  }

  private paintMapBoxes(w: number, h: number, ratio: number): void {
    const { layout, look } = this.scene;
    const { map, mapBoxes, mapScale: scale } = this;
    map.width = mapBoxes.width = Math.round(w * ratio);
    map.height = mapBoxes.height = Math.round(h * ratio);
    map.style.width = `${w}px`;
    map.style.height = `${h}px`;
    this.mapDirty = false;
    const context = mapBoxes.getContext("2d") as CanvasRenderingContext2D;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (let box = 0; box < layout.x.length; box++) {
      const style = look(box);
      if (!style) continue;
      context.globalAlpha = style.dim ? 0.3 : 1;
      context.fillStyle = style.line;
      const [x, y] = [(layout.x[box] as number) * scale.x, (layout.y[box] as number) * scale.y];
      const [wide, high] = [
        (layout.w[box] as number) * scale.x,
        (layout.h[box] as number) * scale.y,
      ];
      context.fillRect(x, y, Math.max(1, wide), Math.max(0.8, high));
    }
  }
}
