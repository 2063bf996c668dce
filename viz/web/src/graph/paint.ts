// Draws the visible part of a layout on a canvas.

import { shorten } from "../format";
import { SIGNS, colour, roleFill, roleLine } from "../theme";
import type { Camera } from "./camera";
import { type Box, type Diagram, LONGEST } from "./diagram";
import type { Layout, Route } from "./layout";

export interface Look {
  fill: string;
  line: string;
  dim: boolean;
  sign: string; // stands before the label
  detail: string;
  dashed: boolean;
  loud: boolean; // the detail is what counts
  strong: "" | "marked" | "critical"; // a thicker frame
}

export interface Scene {
  diagram: Diagram;
  layout: Layout;
  look: (box: number) => Look | null; // null: not there
  linkState: (link: number) => "plain" | "strong" | "critical" | "dim" | "hidden";
  linkLabel: (link: number) => string;
  selected: number;
}

/** Below this scale, links between neighbouring rows are not drawn. */
export const TINY = 0.12;

const SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";
const MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

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

/** First and last row that are seen. */
export function visibleRows(layout: Layout, top: number, bottom: number): [number, number] {
  const rows = layout.byRow.length;
  let [low, high] = [0, rows];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((layout.tops[middle + 1] as number) < top) low = middle + 1;
    else high = middle;
  }
  let last = low;
  while (last < rows && (layout.tops[last] as number) <= bottom) last++;
  return [low, last];
}

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
  lanes(context, layout);
  brackets(context, layout, camera, from.y, to.y);
  buses(context, scene, from.y, to.y);
  links(context, scene, camera, from.y, to.y);
  const [first, last] = visibleRows(layout, from.y, to.y);
  const detail = camera.scale > 0.3;
  for (let row = first; row < last; row++) {
    for (const box of layout.byRow[row] ?? []) {
      const x = layout.x[box] as number;
      if (x > to.x || x + (layout.w[box] as number) < from.x) continue;
      drawBox(context, scene, box, detail, camera.scale);
    }
  }
  if (camera.scale > 0.5) labels(context, scene);
  context.restore();
  laneNames(context, layout, camera, width);
}

function lanes(context: CanvasRenderingContext2D, layout: Layout): void {
  context.fillStyle = colour("lane");
  for (const lane of layout.lanes) {
    context.beginPath();
    context.roundRect(lane.x, 0, lane.width, layout.height, 12);
    context.fill();
  }
}

/** Names stay at the top while the lane is scrolled. */
function laneNames(
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

const LINK_STYLES = {
  dim: { colour: "faint", alpha: 0.22, width: 1 },
  plain: { colour: "faint", alpha: 0.75, width: 1.2 },
  critical: { colour: "critical", alpha: 1, width: 3 },
  strong: { colour: "accent", alpha: 1, width: 2.2 },
} as const;

function links(
  context: CanvasRenderingContext2D,
  scene: Scene,
  camera: Camera,
  top: number,
  bottom: number,
): void {
  const groups: Record<keyof typeof LINK_STYLES, Route[]> = {
    dim: [],
    plain: [],
    critical: [],
    strong: [],
  };
  const tiny = camera.scale < TINY;
  for (const route of scene.layout.routes) {
    if (route.top > bottom || route.bottom < top) continue;
    const state = scene.linkState(route.link);
    if (state === "hidden") continue;
    // From afar the short links are shorter than a pixel's gap between the rows.
    if (tiny && route.curve && (state === "plain" || state === "dim")) continue;
    groups[state].push(route);
  }
  for (const state of ["dim", "plain", "critical", "strong"] as const) {
    const style = LINK_STYLES[state];
    context.strokeStyle = context.fillStyle = colour(style.colour);
    context.globalAlpha =
      state === "plain" ? Math.min(style.alpha, Math.max(0.12, 2.5 * camera.scale)) : style.alpha;
    context.lineWidth = Math.max(style.width, 0.7 / camera.scale);
    for (const dashed of [false, true]) {
      const routes = groups[state].filter(
        (route) => scene.diagram.links[route.link]?.order === dashed,
      );
      if (!routes.length) continue;
      context.setLineDash(dashed ? [4, 4] : []);
      context.beginPath();
      for (const route of routes) trace(context, route);
      context.stroke();
    }
    context.setLineDash([]);
    if (camera.scale < 0.3) continue;
    context.beginPath();
    for (const { points } of groups[state])
      head(context, points.at(-2) as number, points.at(-1) as number);
    context.fill();
  }
  context.globalAlpha = 1;
}

function trace(context: CanvasRenderingContext2D, { points, curve }: Route): void {
  const p = points as [number, number, number, number, number, number, number, number];
  context.moveTo(p[0], p[1]);
  if (curve) {
    context.bezierCurveTo(p[2], p[3], p[4], p[5], p[6], p[7] - 4);
    return;
  }
  for (let k = 2; k + 3 < points.length; k += 2) {
    const [x, y, nx, ny] = points.slice(k, k + 4) as [number, number, number, number];
    const room = Math.min(
      7,
      Math.abs(nx - x || ny - y) / 2,
      Math.abs(x - (points[k - 2] as number) || y - (points[k - 1] as number)) / 2,
    );
    context.arcTo(x, y, nx, ny, room);
  }
  context.lineTo(points.at(-2) as number, (points.at(-1) as number) - 4);
}

const probe = document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;

/** The link drawn at a point, the last one of several; -1 for none. */
export function linkAt(scene: Scene, x: number, y: number, wide: number): number {
  probe.lineWidth = wide;
  let found = -1;
  for (const route of scene.layout.routes) {
    if (y < route.top - wide || y > route.bottom + wide) continue;
    if (scene.linkState(route.link) === "hidden") continue;
    probe.beginPath();
    trace(probe, route);
    if (probe.isPointInStroke(x, y)) found = route.link;
  }
  return found;
}

function head(context: CanvasRenderingContext2D, x: number, y: number): void {
  context.moveTo(x, y);
  context.lineTo(x - 3.6, y - 6.5);
  context.lineTo(x + 3.6, y - 6.5);
  context.closePath();
}

const frameColour = (look: Look, selected: boolean): string =>
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
  context.font = `${box.folded ? "600 " : ""}12px ${MONO}`;
  const label = `${look.sign ? `${look.sign} ` : ""}${shorten(box.label, LONGEST)}`;
  const { detail } = look;
  context.fillText(label, x, detail ? y + 17 : y + h / 2 + 4);
  if (!detail) return;
  context.fillStyle = colour(look.loud ? "text" : "faint-text");
  context.font = `10px ${MONO}`;
  context.fillText(shorten(detail, Math.floor((w - 8) / 6.1)), x, y + 31);
}

/** What flows along the links of the selected box. */
function labels(context: CanvasRenderingContext2D, scene: Scene): void {
  if (scene.selected < 0) return;
  context.font = `10px ${MONO}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const taken: { x: number; y: number; w: number }[] = [];
  for (const route of scene.layout.routes) {
    if (scene.linkState(route.link) !== "strong" || scene.diagram.links[route.link]?.order)
      continue;
    const text = scene.linkLabel(route.link);
    const p = route.points;
    const outgoing = scene.diagram.links[route.link]?.source === scene.selected;
    let x = ((p[0] as number) + (p.at(-2) as number)) / 2;
    let y = ((p[1] as number) + (p.at(-1) as number)) / 2;
    if (!route.curve) {
      x = outgoing
        ? (p[2] as number) + (p[4] as number)
        : (p.at(-4) as number) + (p.at(-6) as number);
      x /= 2;
      y = outgoing ? (p[3] as number) : (p.at(-3) as number);
    }
    const w = context.measureText(text).width + 10;
    // Links side by side leave no room for all labels: the details panel has them anyway.
    if (
      taken.some((other) => Math.abs(other.y - y) < 15 && Math.abs(other.x - x) < (other.w + w) / 2)
    )
      continue;
    taken.push({ x, y, w });
    context.fillStyle = colour("page");
    context.globalAlpha = 0.92;
    context.beginPath();
    context.roundRect(x - w / 2, y - 8, w, 16, 4);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = colour("text");
    context.fillText(text, x, y + 0.5);
  }
}
