// Draws the visible part of a layout on a canvas.

import { shorten, shortenList } from "../format";
import { SIGNS, colour, roleFill, roleLine } from "../theme";
import type { Camera } from "./camera";
import { type Box, LABEL_SIZE, LONGEST } from "./diagram";
import type { Layout } from "./layout";
import { ends, labels, links } from "./links";
import { type Area, type Look, MONO, SANS, type Scene, rowsIn } from "./scene";

export function plainLook(box: Box): Look {
  return {
    fill: roleFill(box.role),
    line: roleLine(box.role),
    dim: false,
    sign: SIGNS[box.role] ?? "",
    detail: box.detail,
    dashed: false,
    loud: false,
    strong: "",
  };
}

const LEAST_NAMED = 24; // pixels

export function paint(
  context: CanvasRenderingContext2D,
  scene: Scene,
  camera: Camera,
  width: number,
  height: number,
): void {
  const { layout } = scene;
  const from = camera.at(0, 0);
  const to = camera.at(width, height);
  context.save();
  context.translate(camera.x, camera.y);
  context.scale(camera.scale, camera.scale);
  const area = { left: from.x, top: from.y, right: to.x, bottom: to.y };
  lanes(context, layout, area);
  brackets(context, layout, camera, from.y, to.y);
  buses(context, scene, from.y, to.y);
  links(context, scene, camera, area);
  const detail = camera.scale > 0.3;
  for (const row of rowsIn(layout, area)) {
    for (const box of layout.byRow[row] ?? []) {
      const x = layout.x[box] as number;
      if (x > to.x || x + (layout.w[box] as number) < from.x) continue;
      drawBox(context, scene, box, detail, camera.scale);
    }
  }
  if (camera.scale > 0.5) {
    ends(context, scene, area);
    labels(context, scene);
  }
  scene.over?.(context, camera);
  context.restore();
  laneNames(context, layout, camera, width);
}

function lanes(context: CanvasRenderingContext2D, layout: Layout, { left, right }: Area): void {
  context.fillStyle = colour("lane");
  for (const lane of layout.lanes) {
    if (lane.x > right || lane.x + lane.width < left) continue;
    context.beginPath();
    context.roundRect(lane.x, 0, lane.width, lane.height, 12);
    context.fill();
  }
}

/** Names stay at the top while the lane is scrolled. */
export function laneNames(
  context: CanvasRenderingContext2D,
  layout: Layout,
  camera: Camera,
  width: number,
): void {
  context.font = `600 13px ${SANS}`;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const lane of layout.lanes.filter((lane) => lane.name)) {
    const left = Math.max(0, lane.x * camera.scale + camera.x);
    const right = Math.min(width, (lane.x + lane.width) * camera.scale + camera.x);
    if (right - left < LEAST_NAMED) continue;
    const shown = context.measureText(lane.name).width + 24;
    if (right - left < shown && layout.lanes.length > 1) continue;
    const y = Math.max(18, camera.y + 22 * camera.scale);
    context.fillStyle = colour("lane-name");
    context.beginPath();
    context.roundRect((left + right - shown) / 2, y - 12, shown, 24, 12);
    context.fill();
    context.fillStyle = colour("text");
    context.fillText(lane.name, (left + right) / 2, y + 1);
  }
}

function brackets(
  context: CanvasRenderingContext2D,
  layout: Layout,
  camera: Camera,
  top: number,
  bottom: number,
): void {
  if (camera.scale < 0.12) return;
  context.strokeStyle = colour("bracket");
  const larger = Math.min(1.4, Math.max(1, 1 / camera.scale)); // names stay legible from afar
  context.lineWidth = 3 * larger;
  context.lineCap = "round";
  context.font = `${11 * larger}px ${SANS}`;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  for (const bracket of layout.brackets) {
    if (bracket.top > bottom || bracket.bottom < top) continue;
    context.beginPath();
    context.moveTo(bracket.x, bracket.top + 2);
    context.lineTo(bracket.x, bracket.bottom - 2);
    context.stroke();
    const seen = [Math.max(bracket.top, top), Math.min(bracket.bottom, bottom)] as const;
    if (camera.scale < 0.4 || seen[1] - seen[0] < 50 * larger) continue;
    context.save();
    context.translate(bracket.x - 5 * larger, (seen[0] + seen[1]) / 2);
    context.rotate(-Math.PI / 2);
    context.fillStyle = colour("faint");
    context.fillText(
      shorten(bracket.label, Math.floor((seen[1] - seen[0]) / (6.5 * larger))),
      0,
      0,
    );
    context.restore();
  }
}

function buses(context: CanvasRenderingContext2D, scene: Scene, top: number, bottom: number): void {
  for (const bus of scene.layout.buses) {
    if (bus.y < top - 20 || bus.y > bottom + 20) continue;
    const look = scene.look(bus.box);
    if (!look) continue;
    context.globalAlpha = look.dim ? 0.35 : 1;
    context.strokeStyle = context.fillStyle = look.line;
    context.lineWidth = look.strong ? 3 : 2;
    context.beginPath();
    context.moveTo(bus.left, bus.y);
    context.lineTo(bus.right, bus.y);
    context.stroke();
    for (const x of bus.ports) {
      context.beginPath();
      context.arc(x, bus.y, 4.5, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
  }
}

/** Of a box that stands out. */
export const frameColour = (look: Look, selected: boolean): string =>
  colour(selected || look.strong === "marked" ? "accent" : "critical");

function drawBox(
  context: CanvasRenderingContext2D,
  scene: Scene,
  number: number,
  detailed: boolean,
  scale: number,
): void {
  const look = scene.look(number);
  const box = scene.diagram.boxes[number];
  if (!look || !box) return;
  const { layout } = scene;
  const [x, y] = [layout.x[number] as number, layout.y[number] as number];
  const [w, h] = [layout.w[number] as number, layout.h[number] as number];
  const selected = scene.selected === number;
  context.globalAlpha = look.dim && !selected ? 0.5 : 1;
  if (!detailed) {
    context.fillStyle = look.strong || selected ? frameColour(look, selected) : look.line;
    const grow = selected ? 6 / scale : 0;
    context.fillRect(x - grow / 2, y - grow / 2, w + grow, h + grow);
    context.globalAlpha = 1;
    return;
  }
  const radius = box.lane === null ? h / 2 : 7;
  context.setLineDash(look.dashed ? [5, 4] : []);
  context.lineWidth = 1.3;
  context.strokeStyle = look.line;
  if (box.stacked) {
    context.fillStyle = colour("page");
    context.beginPath();
    context.roundRect(x + 4, y + 4, w, h, radius);
    context.fill();
    context.stroke();
  }
  context.fillStyle = colour("page");
  context.beginPath();
  context.roundRect(x, y, w, h, radius);
  context.fill();
  context.fillStyle = look.fill;
  context.fill();
  if (look.strong || selected) {
    context.lineWidth = 3;
    context.strokeStyle = frameColour(look, selected);
  }
  context.stroke();
  context.setLineDash([]);
  write(context, box, look, [x, y, w, h]);
  context.globalAlpha = 1;
}

function write(
  context: CanvasRenderingContext2D,
  box: Box,
  look: Look,
  at: [number, number, number, number],
): void {
  const [left, y, w, h] = at;
  const x = left + w / 2;
  context.textAlign = "center";
  context.textBaseline = "alphabetic";
  context.fillStyle = colour("text");
  context.font = `${box.folded ? "600 " : ""}${LABEL_SIZE}px ${MONO}`;
  const label = `${look.sign ? `${look.sign} ` : ""}${shorten(box.label, LONGEST)}`;
  const { detail } = look;
  context.fillText(label, x, detail ? y + 17 : y + h / 2 + 4);
  if (!detail) return;
  context.fillStyle = colour(look.loud ? "text" : "faint-text");
  context.font = `10px ${MONO}`;
  const cut = box.folded ? shortenList : shorten;
  context.fillText(cut(detail, Math.floor((w - 8) / 6.1)), x, y + 31);
}
