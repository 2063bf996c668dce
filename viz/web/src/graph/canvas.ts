// The drawing of a diagram that pans, zooms and answers clicks; graph and passes share it.

import { h } from "../dom";
import { figures } from "../link";
import { Surface, onDrag, wheelFactor, wheelIsOurs } from "../surface";
import { onTheme } from "../theme";
import { Camera, MARGIN } from "./camera";
import type { Room } from "./columns";
import { FarPicture } from "./far";
import type { Bracket } from "./layout";
import { linkAt, TINY } from "./links";
import { MAP_COLUMN, MAP_LEAST, MiniMap } from "./map";
import { laneNames, paint } from "./paint";
import { type Scene, emptyScene, rowsIn } from "./scene";

export interface Answers {
  click: (box: number, event: MouseEvent) => void; // -1: beside all boxes
  bracket: (bracket: Bracket) => void;
  tip: (box: number) => string[]; // lines; the first one stands out
  linkTip: (link: number) => string[];
  moved: () => void; // another part of the drawing is seen
  ready: () => void; // the canvas has a size: `show` something
}

const REACH = 4; // pixels from which a link is hovered
const NOTHING = { box: -1, link: -1 };

/** The upper left corner of what is seen, in the drawing's own units, and how large it is. */
export interface Sight {
  x: number;
  y: number;
  scale: number;
}

export function sightText({ x, y, scale }: Sight): string {
  return `${x.toFixed(1)},${y.toFixed(1)},${scale.toPrecision(5)}`;
}

/** Read what `sightText` wrote; null if it is none. */
export function sightOf(text: string | undefined): Sight | null {
  const [x, y, scale] = figures(text, 3) ?? [];
  return x === undefined || y === undefined || !scale ? null : { x, y, scale: Math.abs(scale) };
}

export class DiagramCanvas {
  readonly element = h("div", { class: "canvas", tabindex: 0, role: "application" });
  readonly camera: Camera;
  private readonly surface: Surface;
  private readonly map = new MiniMap();
  private readonly tip = h("div", { class: "tip", hidden: true });
  private readonly far = new FarPicture();
  private dragsMap = false;
  private fitted = false;
  private pending = -1; // box to reveal as soon as the canvas has a size
  private wanted: Sight | null = null; // what to show as soon as the canvas has a size
  private pointer = { x: 0, y: 0 };
  private under = NOTHING; // what the tip speaks of

  scene = emptyScene();

  constructor(private readonly answers: Answers) {
    this.camera = new Camera(
      () => this.scene.layout,
      () => this.surface,
    );
    this.surface = new Surface(
      this.element,
      (context) => this.paint(context),
      () => this.resized(),
    );
    this.element.append(this.far.canvas, this.map.element, this.tip);
    this.listen();
  }

  /** What a drawing has to fit; undefined before the canvas is seen. */
  get room(): Room | undefined {
    const { clientWidth, clientHeight } = this.element; // the map comes and goes beside the drawing
    if (!this.surface.width) return undefined;
    return { width: clientWidth - 2 * MARGIN, height: clientHeight - 2 * MARGIN };
  }

  /** Show another diagram; `keep` is a box whose place on the screen stays the same. */
  show(scene: Scene, keep?: { from: number; to: number }): void {
    const before = this.scene.layout;
    this.scene = scene;
    if (!this.surface.width) return;
    if (keep) {
      const { layout } = scene;
      const { scale } = this.camera;
      this.camera.x += ((before.x[keep.from] as number) - (layout.x[keep.to] as number)) * scale;
      this.camera.y += ((before.y[keep.from] as number) - (layout.y[keep.to] as number)) * scale;
      this.camera.pan(0, 0);
    } else {
      this.camera.fit(false);
      if (!this.isAllSeen() && this.element.clientWidth >= MAP_LEAST) {
        this.surface.reserve(MAP_COLUMN);
        this.camera.fit(false);
      }
    }
    if (this.pending >= 0) this.reveal(this.pending, true);
    this.pending = -1;
    this.redraw();
    this.answers.moved();
  }

  /** See what was asked for before there was anything to see. */
  settle(): void {
    if (this.wanted) this.sight = this.wanted;
    this.wanted = null;
  }

  get sight(): Sight {
    return { ...this.camera.at(0, 0), scale: this.camera.scale };
  }

  set sight(sight: Sight) {
    this.wanted = sight;
    if (this.scene.layout.x.length === 0) return;
    const { camera, surface } = this;
    camera.scale = sight.scale;
    camera.x = -sight.x * sight.scale;
    camera.y = -sight.y * sight.scale;
    camera.pan(0, 0);
    surface.redraw();
  }

  /** Draw again because looks have changed, not only the camera. */
  redraw(): void {
    this.forget();
    this.surface.redraw();
  }

  /** Draw again because some boxes look different, and what lies above them. */
  touch(boxes: Iterable<number>): void {
    this.map.touch(this.scene, boxes);
    this.far.touch(this.scene, this.camera, this.surface.ratio, boxes);
    this.surface.redraw();
  }

  private forget(): void {
    this.map.forget();
    this.far.forget();
  }

  fit(whole: boolean): void {
    this.camera.fit(whole);
    this.move();
  }

  zoom(factor: number): void {
    this.camera.zoom(factor, this.surface.width / 2, this.surface.height / 2);
    this.move();
  }

  private move(): void {
    this.surface.redraw();
    this.answers.moved();
  }

  reveal(box: number, centre = false): void {
    const { layout } = this.scene;
    if (!this.fitted || box >= layout.x.length) {
      this.pending = box;
      return;
    }
    const at = [layout.x[box], layout.y[box], layout.w[box], layout.h[box]] as [
      number,
      number,
      number,
      number,
    ];
    this.camera.reveal(...at, centre);
    this.move();
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
    this.answers.ready();
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
        this.move();
      },
      { passive: false },
    );
    element.addEventListener(
      "pointerdown",
      (event) => (this.dragsMap = this.map.holds(...local(event))),
    );
    onTheme(() => this.forget());
    onDrag(
      element,
      (dx, dy, event) => {
        if (this.dragsMap) return this.jump(event);
        this.camera.pan(dx, dy);
        this.hideTip();
        this.move();
      },
      (event) => {
        element.focus({ preventScroll: true });
        const [x, y] = local(event);
        if (this.map.holds(x, y)) return this.jump(event);
        const bracket = this.bracketAt(x, y);
        if (bracket) this.answers.bracket(bracket);
        else this.answers.click(this.boxAt(x, y), event);
      },
    );
    element.addEventListener("pointermove", (event) => {
      if (event.buttons) return;
      const [x, y] = local(event);
      this.pointer = { x, y };
      this.hover();
      const { box } = this.under;
      element.style.cursor = box >= 0 || this.bracketAt(x, y) ? "pointer" : "grab";
    });
    element.addEventListener("pointerleave", () => this.hideTip());
    element.addEventListener("keydown", () => this.hideTip());
  }

  private hideTip(): void {
    this.pointAt(-1);
    this.under = NOTHING;
    this.tip.hidden = true;
  }

  /** The links of what is under the pointer show where they go. */
  private pointAt(box: number): void {
    if (this.scene.hovered === box) return;
    this.scene.hovered = box;
    this.surface.redraw();
  }

  /** What lies under a pixel: a box, or else a link. */
  private found(x: number, y: number): typeof NOTHING {
    if (this.map.holds(x, y)) return NOTHING;
    const box = this.boxAt(x, y);
    return box >= 0 ? { box, link: -1 } : { box: -1, link: this.linkAt(x, y) };
  }

  /** Say what is under the pointer. */
  private hover(): void {
    const { x, y } = this.pointer;
    const { box, link } = (this.under = this.found(x, y));
    this.pointAt(box);
    const lines = box >= 0 ? this.answers.tip(box) : link >= 0 ? this.answers.linkTip(link) : [];
    const said = lines.filter(Boolean);
    this.tip.hidden = !said.length;
    this.tip.replaceChildren(...said.map((line, k) => h(k ? "div" : "b", {}, line)));
    const { clientWidth, clientHeight } = this.element;
    this.tip.style.left = `${Math.min(x + 14, clientWidth - this.tip.offsetWidth - 8)}px`;
    this.tip.style.top = `${Math.min(y + 16, clientHeight - this.tip.offsetHeight - 8)}px`;
  }

  private linkAt(px: number, py: number): number {
    const { camera, scene } = this;
    if (camera.scale < TINY || px > this.surface.width) return -1;
    const { x, y } = camera.at(px, py);
    return linkAt(scene, x, y, (2 * REACH) / camera.scale);
  }

  private boxAt(px: number, py: number): number {
    if (px > this.surface.width) return -1;
    const { layout, look } = this.scene;
    const { x, y } = this.camera.at(px, py);
    for (const row of rowsIn(layout, { left: x, top: y, right: x, bottom: y })) {
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
    const near = (b: Bracket): boolean => x > b.x - 17 && x < b.x + 4 && y > b.top && y < b.bottom;
    return this.scene.layout.brackets.find(near) ?? null;
  }

  private paint(context: CanvasRenderingContext2D): void {
    const { width, height } = this.surface;
    if (this.far.covers(this.scene, this.camera, this.surface.ratio)) {
      this.far.paint(context, this.scene, this.camera, this.surface);
      laneNames(context, this.scene.layout, this.camera, width);
    } else {
      this.far.hide();
      paint(context, this.scene, this.camera, width, height);
    }
    this.paintMap(width, height);
    if (this.tip.hidden) return; // what it speaks of may have gone, or moved
    const found = this.found(this.pointer.x, this.pointer.y);
    if (found.box !== this.under.box || found.link !== this.under.link) this.hover();
  }

  private isAllSeen(): boolean {
    const { width, height } = this.surface;
    const { layout } = this.scene;
    const { scale } = this.camera;
    return layout.width * scale <= width && layout.height * scale <= height;
  }

  /** Move the view to a point of the overview. */
  private jump(event: PointerEvent): void {
    const { camera, surface } = this;
    const { x, y } = this.map.at(event);
    camera.x = surface.width / 2 - x * camera.scale;
    camera.y = surface.height / 2 - y * camera.scale;
    camera.pan(0, 0);
    this.move();
  }

  /** The overview in a column of its own, from when a part of the drawing is out of view. */
  private paintMap(width: number, height: number): void {
    const { element } = this.map;
    if (this.element.clientWidth < MAP_LEAST) element.hidden = true;
    else if (!this.isAllSeen()) element.hidden = false;
    this.surface.reserve(element.hidden ? 0 : MAP_COLUMN);
    if (!element.hidden) this.map.paint(this.scene, this.camera, width, height);
  }
}
