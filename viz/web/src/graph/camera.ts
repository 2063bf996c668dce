// The visible part of a drawing, and its scale.

import { LABEL_SIZE } from "./diagram";
import { READABLE } from "./legible";

export const MARGIN = 20; // pixels around a drawing that fits
const READABLE_SCALE = READABLE / LABEL_SIZE;

export class Camera {
  scale = 1;
  x = 0; // of the drawing's origin, in pixels of the canvas
  y = 0;

  constructor(
    private readonly size: () => { width: number; height: number },
    private readonly view: () => { width: number; height: number },
  ) {}

  zoom(factor: number, x: number, y: number): void {
    const scale = Math.max(this.least(), Math.min(3, this.scale * factor));
    this.x = x - ((x - this.x) * scale) / this.scale;
    this.y = y - ((y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.clamp();
  }

  pan(dx: number, dy: number): void {
    this.x += dx;
    this.y += dy;
    this.clamp();
  }

  /** Show everything, or as much of it as can be read, from its top left. */
  fit(whole: boolean): void {
    const { width, height } = this.size();
    const view = this.view();
    const across = (view.width - 2 * MARGIN) / width;
    const down = (view.height - 2 * MARGIN) / height;
    const fitting = Math.min(across, down, 1);
    this.scale = Math.max(this.least(), whole ? fitting : Math.max(fitting, READABLE_SCALE));
    this.x = (view.width - width * this.scale) / 2;
    this.y = Math.max(20, (view.height - height * this.scale) / 2);
    if (width * this.scale > view.width) this.x = 20;
    if (height * this.scale > view.height) this.y = 32 - 12 * this.scale; // below the names of the lanes
  }

  /** Bring a rectangle into view, moving as little as needed; `centre` moves it to the middle. */
  reveal(x: number, y: number, w: number, h: number, centre: boolean): void {
    const view = this.view();
    if (centre && this.scale < 0.6) this.scale = 0.9;
    const [left, top] = [x * this.scale + this.x, y * this.scale + this.y];
    const [right, bottom] = [left + w * this.scale, top + h * this.scale];
    const { width, height } = this.size();
    const isAllSeen = width * this.scale <= view.width && height * this.scale <= view.height;
    const margin = isAllSeen ? 0 : 50;
    const inside =
      left >= margin &&
      top >= margin &&
      right <= view.width - margin &&
      bottom <= view.height - margin;
    if (inside) return;
    if (centre) {
      const middle = [(x + w / 2) * this.scale, (y + h / 2) * this.scale] as const;
      this.x = filling(view.width / 2 - middle[0], width * this.scale, view.width);
      this.y = filling(view.height / 2 - middle[1], height * this.scale, view.height);
    } else {
      this.x += Math.max(0, margin - left) - Math.max(0, right - view.width + margin);
      this.y += Math.max(0, margin - top) - Math.max(0, bottom - view.height + margin);
    }
    this.clamp();
  }

  /** A point of the drawing under a pixel of the canvas. */
  at(x: number, y: number): { x: number; y: number } {
    return { x: (x - this.x) / this.scale, y: (y - this.y) / this.scale };
  }

  private least(): number {
    const { width, height } = this.size();
    const view = this.view();
    return Math.min(0.5, (0.8 * view.width) / width, (0.8 * view.height) / height);
  }

  /** Keep a bit of the drawing in view. */
  private clamp(): void {
    const { width, height } = this.size();
    const view = this.view();
    const keep = 80;
    this.x = Math.min(view.width - keep, Math.max(keep - width * this.scale, this.x));
    this.y = Math.min(view.height - keep, Math.max(keep - height * this.scale, this.y));
  }
}

/** Where a drawing begins, as near to a place as leaves no more room beside it than it must. */
function filling(at: number, size: number, room: number): number {
  const edge = 32;
  if (size + 2 * edge <= room) return (room - size) / 2;
  return Math.min(edge, Math.max(room - size - edge, at));
}
