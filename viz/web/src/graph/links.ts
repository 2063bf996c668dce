// Draws links, and in words the ends of those that go far.

import { shorten } from "../format";
import { colour } from "../theme";
import type { Camera } from "./camera";
import type { Route } from "./layout";
import { routesIn } from "./near";
import { type Area, MONO, SANS, type Scene } from "./scene";

/** Below this scale, links between neighbouring rows are not drawn. */
export const TINY = 0.12;

const LINK_STYLES = {
  dim: { colour: "faint", alpha: 0.22, width: 1 },
  plain: { colour: "faint", alpha: 0.75, width: 1.2 },
  critical: { colour: "critical", alpha: 1, width: 3 },
  strong: { colour: "accent", alpha: 1, width: 2.2 },
} as const;

export function links(
  context: CanvasRenderingContext2D,
  scene: Scene,
  camera: Camera,
  area: Area,
): void {
  paintRoutes(context, scene, camera, routesIn(scene.layout, area));
}

export function paintRoutes(
  context: CanvasRenderingContext2D,
  scene: Scene,
  camera: Camera,
  near: Route[],
): void {
  const groups: Record<keyof typeof LINK_STYLES, Route[]> = {
    dim: [],
    plain: [],
    critical: [],
    strong: [],
  };
  const tiny = camera.scale < TINY;
  for (const route of near) {
    const state = stateOf(scene, route);
    if (state === "hidden") continue;
    if (route.far && (state === "plain" || state === "dim")) continue;
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

/** What is under the mouse shows where its links go. */
function stateOf(scene: Scene, route: Route): ReturnType<Scene["linkState"]> {
  const state = scene.linkState(route.link);
  const link = scene.diagram.links[route.link];
  const { hovered } = scene;
  const touched = hovered >= 0 && (link?.source === hovered || link?.target === hovered);
  return touched && !link?.order && state !== "hidden" ? "strong" : state;
}

/** In words where links go that are too long to be drawn. */
export function ends(context: CanvasRenderingContext2D, scene: Scene, area: Area): void {
  const { layout } = scene;
  context.font = `9.5px ${SANS}`;
  context.textBaseline = "alphabetic";
  for (const { box, out, texts } of scene.stubs) {
    const [x, y] = [layout.x[box] as number, layout.y[box] as number];
    const [w, h] = [layout.w[box] as number, layout.h[box] as number];
    if (x > area.right || x + w < area.left || y > area.bottom || y + h < area.top) continue;
    const look = scene.look(box);
    if (!look) continue;
    context.textAlign = out ? "left" : "right";
    const isStacked = scene.diagram.boxes[box]?.stacked;
    const at = out ? x + w / 2 + 6 : x + w / 2 - 6;
    const most = Math.max(12, Math.floor((w / 2 + 12) / 4.9)); // of the next box, half is free, too
    const fitting = texts.find((text) => text.length <= most) ?? texts.at(-1) ?? "";
    const [text, line] = [shorten(fitting, most), out ? y + h + (isStacked ? 16 : 12) : y - 6];
    const wide = text.length * 4.9;
    context.fillStyle = colour("lane"); // links pass behind words
    context.fillRect(out ? at - 1 : at - wide, line - 8, wide, 10);
    context.globalAlpha = look.dim ? 0.4 : 0.9;
    context.fillStyle = colour("faint-text");
    context.fillText(text, at, line);
    context.globalAlpha = 1;
  }
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

/** The link drawn at a point, the last one of several; -1 for none. */
export function linkAt(scene: Scene, x: number, y: number, wide: number): number {
  probe ??= document.createElement("canvas").getContext("2d") as CanvasRenderingContext2D;
  probe.lineWidth = wide;
  let found = -1;
  const area = { left: x - wide, top: y - wide, right: x + wide, bottom: y + wide };
  for (const route of routesIn(scene.layout, area)) {
    const state = stateOf(scene, route);
    if (state === "hidden" || (route.far && (state === "plain" || state === "dim"))) continue;
    probe.beginPath();
    trace(probe, route);
    if (probe.isPointInStroke(x, y)) found = route.link;
  }
  return found;
}

let probe: CanvasRenderingContext2D | null = null;

function head(context: CanvasRenderingContext2D, x: number, y: number): void {
  context.moveTo(x, y);
  context.lineTo(x - 3.6, y - 6.5);
  context.lineTo(x + 3.6, y - 6.5);
  context.closePath();
}

/** What flows along the links of the selected box. */
export function labels(context: CanvasRenderingContext2D, scene: Scene): void {
  if (scene.selected < 0) return;
  context.font = `10px ${MONO}`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const taken: { x: number; y: number; w: number }[] = [];
  for (const route of scene.layout.routes) {
    if (route.far || scene.diagram.links[route.link]?.order) continue;
    if (scene.linkState(route.link) !== "strong") continue;
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
