// The playhead as a line through a chart over time.

import { colour } from "../theme";

export function playLine(
  context: CanvasRenderingContext2D,
  x: number,
  top: number,
  bottom: number,
): void {
  x = Math.round(x); // else the line is blurred
  context.fillStyle = colour("critical");
  context.fillRect(x - 1, top, 2, bottom - top);
  context.beginPath();
  context.moveTo(x - 6, top);
  context.lineTo(x + 6, top);
  context.lineTo(x, top + 8);
  context.fill();
}
