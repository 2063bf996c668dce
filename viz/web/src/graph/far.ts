// A large drawing from afar: painted once at a few sizes, so that moving it costs no more than a
// picture of the window's size.

import { h } from "../dom";
import { colour } from "../theme";
import type { Camera } from "./camera";
import { TINY, paintRoutes } from "./links";
import type { Route } from "./layout";
import type { Scene } from "./scene";

const MANY = 3000; // boxes; fewer are drawn again for every frame
const SMALLEST = 1024; // pixels of the longer side
const LEVELS = 3; // each twice as large as the one before

export class FarPicture {
  private levels: (HTMLCanvasElement | undefined)[] = [];
  private loud: Route[] = []; // links that stand out

  /** Looks have changed, or there is another drawing. */
  forget(): void {
    this.levels = [];
  }

  /** Whether a picture stands for the boxes at this distance. */
  covers({ layout }: Scene, camera: Camera, ratio: number): boolean {
    const largest = this.scaleAt(layout, LEVELS - 1);
    return layout.x.length > MANY && camera.scale < TINY && camera.scale * ratio <= largest;
  }

  paint(context: CanvasRenderingContext2D, scene: Scene, camera: Camera, ratio: number): void {
    let level = 0;
    while (this.scaleAt(scene.layout, level) < camera.scale * ratio && level < LEVELS - 1) level++;
    if (!this.levels.length)
      this.loud = scene.layout.routes.filter(({ link }) =>
        ["strong", "critical"].includes(scene.linkState(link)),
      );
    const picture = (this.levels[level] ??= this.made(scene, level));
    const { width, height } = scene.layout;
    context.drawImage(picture, camera.x, camera.y, width * camera.scale, height * camera.scale);
    context.save();
    context.translate(camera.x, camera.y);
    context.scale(camera.scale, camera.scale);
    paintRoutes(context, scene, camera, this.loud);
    scene.over?.(context, camera);
    context.restore();
  }

  /** Pixels of a picture per pixel of the drawing. */
  private scaleAt({ width, height }: Scene["layout"], level: number): number {
    return (SMALLEST * 2 ** level) / Math.max(width, height);
  }

  private made({ layout, look }: Scene, level: number): HTMLCanvasElement {
    const scale = this.scaleAt(layout, level);
    const picture = h("canvas");
    picture.width = Math.max(1, Math.ceil(layout.width * scale));
    picture.height = Math.max(1, Math.ceil(layout.height * scale));
    const context = picture.getContext("2d") as CanvasRenderingContext2D;
    context.scale(scale, scale);
    context.fillStyle = colour("lane");
    for (const lane of layout.lanes) context.fillRect(lane.x, 0, lane.width, lane.height);
    const least = 0.8 / scale; // pixels below which nothing is seen
    for (let box = 0; box < layout.x.length; box++) {
      const style = look(box);
      if (!style) continue;
      context.globalAlpha = style.dim ? 0.3 : 1;
      context.fillStyle = style.strong ? colour("critical") : style.line;
      context.fillRect(
        layout.x[box] as number,
        layout.y[box] as number,
        Math.max(least, layout.w[box] as number),
        Math.max(least, layout.h[box] as number),
      );
    }
    return picture;
  }
}
