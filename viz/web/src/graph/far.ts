// A large drawing from afar, on a canvas of its own behind the links: painted once at a few sizes, so
// that moving it costs no more than a picture of the window's size, and what a playhead changes no
// more than the boxes that are different.

import { h } from "../dom";
import type { Surface } from "../surface";
import { colour } from "../theme";
import { paintBoxes } from "./boxes";
import type { Camera } from "./camera";
import type { Layout, Route } from "./layout";
import { TINY, paintRoutes } from "./links";
import type { Scene } from "./scene";

const MANY = 3000; // boxes; fewer are drawn again for every frame
const SMALLEST = 1024; // pixels of the longer side
const LEVELS = 3; // each twice as large as the one before
const LEAST = 0.8; // pixels below which nothing is seen

interface Level {
  picture: HTMLCanvasElement;
  late: Set<number>; // boxes that look different by now
}

export class FarPicture {
  readonly canvas = h("canvas", { class: "far", "aria-hidden": "true", hidden: true });
  private levels: (Level | undefined)[] = [];
  private loud: Route[] = []; // links that stand out
  private seen = ""; // what of the drawing is on the canvas
  private routes: { layout: Layout; of: Map<number, Route> } | null = null;

  /** Looks have changed, or there is another drawing. */
  forget(): void {
    this.levels = [];
    this.seen = "";
  }

  /** The looks of some boxes have changed. */
  touch(scene: Scene, camera: Camera, ratio: number, boxes: Iterable<number>): void {
    this.late(boxes);
    if (!this.seen) return;
    const context = context2d(this.canvas);
    this.aim(context, camera, ratio);
    paintBoxes(context, scene, least(camera.scale * ratio), boxes);
  }

  private late(boxes: Iterable<number>): void {
    for (const level of this.levels) for (const box of boxes) level?.late.add(box);
  }

  /** Whether a picture stands for the boxes at this distance. */
  covers({ layout }: Scene, camera: Camera, ratio: number): boolean {
    const largest = this.scaleAt(layout, LEVELS - 1);
    return layout.x.length > MANY && camera.scale < TINY && camera.scale * ratio <= largest;
  }

  hide(): void {
    this.canvas.hidden = true;
    this.seen = "";
  }

  /** Show the boxes behind a surface, and draw on it what lies above them. */
  paint(context: CanvasRenderingContext2D, scene: Scene, camera: Camera, surface: Surface): void {
    const { x, y, scale } = camera;
    const { width, height, ratio } = surface;
    const seen = [x, y, scale, width, height, ratio].join();
    if (seen !== this.seen) this.show(scene, camera, surface);
    this.seen = seen;
    this.canvas.hidden = false;
    context.save();
    context.translate(x, y);
    context.scale(scale, scale);
    paintRoutes(context, scene, camera, this.standing(scene));
    scene.over?.(context, camera);
    context.restore();
  }

  private show(scene: Scene, camera: Camera, { width, height, ratio }: Surface): void {
    let level = 0;
    while (this.scaleAt(scene.layout, level) < camera.scale * ratio && level < LEVELS - 1) level++;
    if (!this.levels.length)
      this.loud = scene.layout.routes.filter(({ link }) =>
        ["strong", "critical"].includes(scene.linkState(link)),
      );
    const { picture, late } = (this.levels[level] ??= {
      picture: this.made(scene, level),
      late: new Set(),
    });
    paintBoxes(context2d(picture), scene, least(this.scaleAt(scene.layout, level)), late);
    late.clear();
    this.canvas.width = Math.round(width * ratio); // which clears it
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = context2d(this.canvas);
    this.aim(context, camera, ratio);
    context.drawImage(picture, 0, 0, scene.layout.width, scene.layout.height);
  }

  private aim(context: CanvasRenderingContext2D, { x, y, scale }: Camera, ratio: number): void {
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
  }

  /** The links that stand out. */
  private standing(scene: Scene): Route[] {
    const played = scene.played?.();
    if (!played) return this.loud;
    const { layout } = scene;
    if (this.routes?.layout !== layout)
      this.routes = { layout, of: new Map(layout.routes.map((route) => [route.link, route])) };
    return [...played].flatMap((link) => this.routes?.of.get(link) ?? []);
  }

  /** Pixels of a picture per pixel of the drawing. */
  private scaleAt({ width, height }: Scene["layout"], level: number): number {
    return (SMALLEST * 2 ** level) / Math.max(width, height);
  }

  private made(scene: Scene, level: number): HTMLCanvasElement {
    const { layout } = scene;
    const scale = this.scaleAt(layout, level);
    const picture = h("canvas");
    picture.width = Math.max(1, Math.ceil(layout.width * scale));
    picture.height = Math.max(1, Math.ceil(layout.height * scale));
    const context = context2d(picture);
    context.scale(scale, scale);
    context.fillStyle = colour("lane");
    for (const lane of layout.lanes) context.fillRect(lane.x, 0, lane.width, lane.height);
    paintBoxes(context, scene, least(scale));
    return picture;
  }
}

function context2d(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  return canvas.getContext("2d") as CanvasRenderingContext2D;
}

const least = (scale: number): { w: number; h: number } => ({ w: LEAST / scale, h: LEAST / scale });
