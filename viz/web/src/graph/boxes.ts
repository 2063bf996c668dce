// Boxes as plain rectangles, for pictures from afar: all of them, or some painted again in place.

import { colour } from "../theme";
import { frameColour } from "./paint";
import type { Scene } from "./scene";

/** The least size of a rectangle, in units of the drawing; smaller ones would be invisible. */
export interface Least {
  w: number;
  h: number;
}

/** Paint boxes over the picture; boxes given by number are repainted in place. */
export function paintBoxes(
  context: CanvasRenderingContext2D,
  scene: Scene,
  least: Least,
  boxes?: Iterable<number>,
): void {
  const { layout, look, diagram } = scene;
  const fill = (box: number, by: "fillRect" | "clearRect"): void =>
    context[by](
      layout.x[box] as number,
      layout.y[box] as number,
      Math.max(least.w, layout.w[box] as number),
      Math.max(least.h, layout.h[box] as number),
    );
  for (const box of boxes ?? layout.x.keys()) {
    const style = look(box);
    if (boxes && (!style || style.dim)) {
      context.globalAlpha = 1;
      fill(box, "clearRect");
      context.fillStyle = colour("lane");
      if (diagram.boxes[box]?.lane !== null) fill(box, "fillRect");
    }
    if (!style) continue;
    context.globalAlpha = style.dim ? 0.3 : 1;
    context.fillStyle = style.strong ? frameColour(style, false) : style.line;
    fill(box, "fillRect");
  }
  context.globalAlpha = 1;
}
