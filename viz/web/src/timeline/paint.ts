// Draws the slices in view.

import { playLine } from "../play/line";
import { moment } from "../format";
import { SIGNS, colour, roleFill, roleLine } from "../theme";
import type { TimelineModel } from "./model";
import { OVERVIEW, type Overview } from "./overview";
import type { Area } from "./sums";
import type { Bar, Row, Tracks } from "./tracks";
import { type TimeWindow, ticks } from "../window";

/** Height of what stands above the tracks: the overview and the ruler. */
export const RULER = OVERVIEW + 24;
export const GUTTER = 150;
const SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

export interface Picture {
  model: TimelineModel;
  tracks: Tracks;
  area: Area | null;
  window: TimeWindow;
  scroll: number;
  width: number;
  height: number;
  selected: number;
  marked: Set<number> | null; // slices of the same node, or hits of a search
  critical: boolean;
  overview: Overview;
}

const x = (p: Picture, time: number): number =>
  GUTTER + ((time - p.window.from) / p.window.span) * (p.width - GUTTER);

/** Where something stands in the window: what is pinned does not scroll. */
export function top(p: Picture, place: { y: number; bar: Bar }): number {
  const { pinnedHeight } = p.tracks;
  return RULER + (place.bar.pinned ? place.y : pinnedHeight + place.y - p.scroll);
}

export function paintTimeline(context: CanvasRenderingContext2D, p: Picture): void {
  context.textBaseline = "middle";
  grid(context, p);
  for (const pinned of [true, false]) {
    const from = RULER + (pinned ? 0 : p.tracks.pinnedHeight);
    context.save();
    context.beginPath();
    context.rect(GUTTER, from, p.width - GUTTER, p.height - from);
    context.clip();
    for (const row of p.tracks.rows) {
      const y = top(p, row);
      if (row.bar.pinned === pinned && y <= p.height && y + row.height >= from)
        slices(context, p, row, y);
    }
    for (const bar of p.tracks.bars)
      if (bar.counter >= 0 && bar.pinned === pinned) drawCounter(context, p, bar);
    context.restore();
  }
  over(context, p);
  p.overview.paint(context, p.window, GUTTER, p.width - GUTTER);
}

/** What lies over the slices: the area, and arrows between them. */
function over(context: CanvasRenderingContext2D, p: Picture): void {
  context.save();
  context.beginPath();
  context.rect(GUTTER, OVERVIEW, p.width - GUTTER, p.height);
  context.clip();
  if (p.area) drawArea(context, p, p.area);
  context.beginPath();
  context.rect(GUTTER, RULER, p.width - GUTTER, p.height - RULER);
  context.clip();
  if (p.critical) chain(context, p, p.model.data.critical);
  if (p.selected >= 0)
    for (const flow of p.model.flows(p.selected)) arrow(context, p, flow, colour("accent"));
  context.restore();
  if (!p.tracks.pinnedHeight) return;
  context.fillStyle = colour("border");
  context.fillRect(GUTTER, RULER + p.tracks.pinnedHeight - 1, p.width, 1);
}

function drawArea(context: CanvasRenderingContext2D, p: Picture, area: Area): void {
  const [left, right] = [x(p, area.from), x(p, area.to)];
  context.fillStyle = colour("accent");
  context.globalAlpha = 0.12;
  for (const bar of p.tracks.bars)
    if (area.tracks.includes(bar.track))
      context.fillRect(left, top(p, { y: bar.y, bar }) - 2, right - left, bar.height + 4);
  context.globalAlpha = 0.35;
  context.fillRect(left, OVERVIEW, right - left, RULER - OVERVIEW);
  context.globalAlpha = 1;
  for (const at of [left, right]) context.fillRect(at - 0.5, OVERVIEW, 1, p.height);
}

function grid(context: CanvasRenderingContext2D, p: Picture): void {
  context.font = `11px ${SANS}`;
  context.textAlign = "left";
  const { times, step } = ticks(p.window, p.width - GUTTER);
  for (const time of times) {
    const at = Math.round(x(p, time)) + 0.5;
    if (at < GUTTER) continue;
    context.strokeStyle = colour("grid");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(at, OVERVIEW);
    context.lineTo(at, p.height);
    context.stroke();
    context.fillStyle = colour("faint-text");
    context.fillText(moment(time, step), at + 4, RULER - 11);
  }
  steps(context, p);
}

/** A line where each step starts, named while there is room. */
function steps(context: CanvasRenderingContext2D, p: Picture): void {
  let last = -Infinity;
  for (const { number, from } of p.model.steps) {
    const at = Math.round(x(p, from));
    if (at < GUTTER || at > p.width) continue;
    context.fillStyle = colour("bracket");
    context.fillRect(at - 1, RULER, 1.5, p.height);
    if (at - last < 46) continue;
    last = at;
    context.fillStyle = colour("faint-text");
    context.fillText(`step ${number}`, at + 4, p.height - 9);
  }
}

function slices(context: CanvasRenderingContext2D, p: Picture, row: Row, y: number): void {
  const { model, window } = p;
  const [first, last] = model.between(row.slices, window.from, window.to);
  const height = row.height - 2;
  context.font = `11px ${SANS}`;
  context.textAlign = "left";
  let drawn = -1; // pixel that already has a slice: more of them would not be seen
  const pixel = window.span / (p.width - GUTTER); // nanoseconds
  for (let k = first; k < last; k++) {
    const slice = row.slices[k] as number;
    const left = Math.max(GUTTER - 2, x(p, model.start(slice)));
    const right = Math.min(p.width + 2, x(p, model.stop(slice)));
    const width = right - left;
    const special = slice === p.selected || (p.marked?.has(slice) ?? false);
    if (width < 1 && Math.floor(left) === drawn && !special) {
      // Of a million slices only those are looked at of which there is something to see.
      if (!p.marked) k = model.reaching(row.slices, k, model.start(slice) + pixel / 2) - 1;
      continue;
    }
    drawn = Math.floor(left);
    const role = model.role(slice);
    const critical = p.critical && model.critical.has(slice);
    const dim = (p.marked !== null && !special) || (p.critical && !critical && !special);
    context.globalAlpha = dim ? 0.5 : 1;
    context.fillStyle = width < 4 ? roleLine(role) : roleFill(role);
    context.fillRect(left, y, Math.max(1, width), height);
    if (width >= 4) {
      context.strokeStyle = roleLine(role);
      context.lineWidth = 1;
      context.strokeRect(left + 0.5, y + 0.5, width - 1, height - 1);
    }
    if (critical || special) {
      context.strokeStyle = colour(slice === p.selected || !critical ? "accent" : "critical");
      context.lineWidth = slice === p.selected ? 3 : 2;
      context.strokeRect(left + 1, y + 1, Math.max(1, width - 2), height - 2);
    }
    if (width > 26 && !row.bar.thin)
      label(context, model.name(slice), SIGNS[role] ?? "", left, y + height / 2, width);
  }
  context.globalAlpha = 1;
}

function label(
  context: CanvasRenderingContext2D,
  name: string,
  sign: string,
  left: number,
  y: number,
  width: number,
): void {
  context.fillStyle = colour("text");
  const room = Math.floor((width - 10) / 6.1);
  const text =
    room >= name.length + 2
      ? `${sign} ${name}`
      : name.length <= room
        ? name
        : room > 3
          ? `${name.slice(0, room - 1)}…`
          : "";
  if (text) context.fillText(text, left + 5, y + 0.5, width - 8);
}

/** The critical path as one line through its slices. */
function chain(context: CanvasRenderingContext2D, p: Picture, path: number[]): void {
  for (let k = 1; k < path.length; k++) {
    arrow(context, p, [path[k - 1] as number, path[k] as number], colour("critical"));
  }
}

function arrow(
  context: CanvasRenderingContext2D,
  p: Picture,
  [from, to]: [number, number],
  stroke: string,
): void {
  const { model, tracks, window } = p;
  if (model.stop(from) < window.from && model.start(to) < window.from) return;
  if (model.stop(from) > window.to && model.start(to) > window.to) return;
  const [source, target] = [tracks.rowOf(from), tracks.rowOf(to)];
  if (!source || !target) return;
  const middle = (row: Row): number => top(p, row) + row.height / 2;
  const [x1, y1, x2, y2] = [
    x(p, model.stop(from)),
    middle(source),
    x(p, model.start(to)),
    middle(target),
  ];
  if (y1 === y2 && x2 - x1 < 3) return;
  const bend = Math.max(14, Math.min(60, Math.abs(x2 - x1) / 2));
  context.strokeStyle = context.fillStyle = stroke;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(x1, y1);
  context.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2 - 3, y2);
  context.stroke();
  context.beginPath();
  context.moveTo(x2, y2);
  context.lineTo(x2 - 7, y2 - 3.5);
  context.lineTo(x2 - 7, y2 + 3.5);
  context.fill();
}

function drawCounter(context: CanvasRenderingContext2D, p: Picture, bar: Bar): void {
  const data = p.model.data.counters[bar.counter];
  const most = p.model.most[bar.counter];
  const base = top(p, { y: bar.y, bar }) + bar.height;
  if (!data || !most || base < 0 || base - bar.height > p.height) return;
  const value = (v: number): number => base - (v / most) * (bar.height - (bar.thin ? 1 : 4));
  context.beginPath();
  let [pixel, end] = [-Infinity, 0];
  for (let k = 0; k < data.times.length; k++) {
    const left = x(p, data.times[k] as number);
    const next = data.times[k + 1];
    if (next !== undefined && x(p, next) < GUTTER) continue;
    if (left > p.width) break;
    if (next !== undefined && x(p, next) - pixel < 0.4) continue;
    if (pixel === -Infinity) context.moveTo(left, base);
    pixel = left;
    end = x(p, next ?? p.model.data.span[1]);
    const y = value(data.values[k] as number);
    context.lineTo(left, y);
    context.lineTo(end, y);
  }
  context.lineTo(end, base);
  context.fillStyle = colour("accent-soft");
  context.fill();
  context.strokeStyle = colour("accent");
  context.lineWidth = 1.2;
  context.stroke();
}

/** The line at the playhead's time, if that is in view. */
export function paintPlayhead(
  canvas: CanvasRenderingContext2D,
  { window, width, height }: Picture,
  time: number | null,
): void {
  if (time === null || time < window.from || time > window.to) return;
  const x = GUTTER + ((time - window.from) / window.span) * (width - GUTTER);
  playLine(canvas, x, OVERVIEW, height);
}
