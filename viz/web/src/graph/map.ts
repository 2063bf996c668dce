// The overview beside a drawing that is larger than its window: every box, and a frame around what
// is seen.

import { h } from "../dom";
import { paintBoxes } from "./boxes";
import type { Camera } from "./camera";
import type { Scene } from "./scene";

const WIDTH = 120; // pixels
const WIDEST = 8; // times as wide as it were in proportion

/** What the map takes beside the drawing, of which it hides nothing. */
export const MAP_COLUMN = WIDTH + 20;
/** Pixels of width below which there is no room for a map. */
export const MAP_LEAST = 560;

export class MiniMap {
  private readonly canvas = h("canvas");
  private readonly frame = h("i");
  readonly element = h(
    "div",
    { class: "minimap", "aria-hidden": "true", hidden: true },
    this.canvas,
    this.frame,
  );
  private isDirty = true;
  private scale = { x: 1, y: 1 };
  private ratio = 1;

  /** Looks have changed, or there is another drawing. */
  forget(): void {
    this.isDirty = true;
  }

  /** The looks of some boxes have changed. */
  touch(scene: Scene, boxes: Iterable<number>): void {
    if (!this.isDirty) this.boxes(scene, boxes);
  }

  /** Show what is seen of a drawing, in a column of this height. */
  paint(scene: Scene, camera: Camera, width: number, height: number): void {
    const { layout } = scene;
    const high = height - 20;
    const least = Math.min(WIDTH / layout.width, high / layout.height);
    // A tall graph is stretched sideways, or its overview were a thread.
    const scale = (this.scale = {
      x: Math.min(WIDTH / layout.width, least * WIDEST),
      y: Math.min(high / layout.height, least * WIDEST),
    });
    this.ratio = Math.min(3, devicePixelRatio || 1);
    const [w, h] = [Math.max(12, layout.width * scale.x), Math.max(12, layout.height * scale.y)];
    const [across, down] = [Math.round(w * this.ratio), Math.round(h * this.ratio)];
    if (this.isDirty || this.canvas.width !== across || this.canvas.height !== down) {
      [this.canvas.width, this.canvas.height] = [across, down]; // which clears it
      this.canvas.style.width = `${w}px`;
      this.canvas.style.height = `${h}px`;
      this.isDirty = false;
      this.boxes(scene);
    }
    const from = camera.at(0, 0);
    const { style } = this.frame;
    style.transform = `translate(${from.x * scale.x}px, ${from.y * scale.y}px)`;
    style.width = `${(width / camera.scale) * scale.x}px`;
    style.height = `${(height / camera.scale) * scale.y}px`;
  }

  /** Whether a point of the host is on the map. */
  holds(x: number, y: number): boolean {
    if (this.element.hidden) return false;
    const { offsetLeft, offsetTop, offsetWidth, offsetHeight } = this.element;
    const [right, bottom] = [offsetLeft + offsetWidth, offsetTop + offsetHeight];
    return x >= offsetLeft && y >= offsetTop && x <= right && y <= bottom;
  }

  /** The point of the drawing that an event points at. */
  at(event: MouseEvent): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left) / this.scale.x,
      y: (event.clientY - box.top) / this.scale.y,
    };
  }

  private boxes(scene: Scene, boxes?: Iterable<number>): void {
    const context = this.canvas.getContext("2d") as CanvasRenderingContext2D;
    const { x, y } = this.scale;
    context.setTransform(x * this.ratio, 0, 0, y * this.ratio, 0, 0);
    paintBoxes(context, scene, { w: 1 / x, h: 0.8 / y }, boxes);
  }
}
