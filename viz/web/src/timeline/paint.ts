// Draws the slices in view.

import type { CounterData } from "../data";
import { figure, moment } from "../format";
import { SIGNS, colour, roleFill, roleLine } from "../theme";
import type { Row, TimelineModel } from "./model";
import { OVERVIEW, type Overview } from "./overview";
import { type TimeWindow, ticks } from "../window";

/** Height of what stands above the tracks: the overview and the ruler. */
export const RULER = OVERVIEW + 24;
export const GUTTER = 150;
const ROW = 22;
const TRACK_GAP = 6;
const GROUP_HEAD = 24;
const COUNTER = 46;
const SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";

/** Where rows, headings and counters stand, from the top of the scrolled content. */
export interface Plan {
  rows: Float64Array;
  heads: { text: string; y: number }[];
  names: { text: string; y: number; height: number }[];
  counters: { data: CounterData; y: number; most: number }[];
  height: number;
}

export function plan(model: TimelineModel): Plan {
  const result: Plan = {
    rows: new Float64Array(model.rows.length),
    heads: [],
    names: [],
    counters: [],
    height: 0,
  };
  let y = 4;
  let group: string | null = null;
  for (const track of model.tracks) {
    if (track.group !== group) {
      result.heads.push({ text: track.group, y });
      y += GROUP_HEAD;
      group = track.group;
    }
    result.names.push({ text: track.name, y, height: track.depths * ROW });
    for (let depth = 0; depth < track.depths; depth++, y += ROW)
      result.rows[track.first + depth] = y;
    y += TRACK_GAP;
  }
  for (const data of model.data.counters) {
    y += 4;
    const most = data.values.reduce((a, b) => Math.max(a, b), 0);
    result.counters.push({ data, y, most });
    y += COUNTER + TRACK_GAP;
  }
  result.height = y + 8;
  return result;
}

export interface Picture {
  model: TimelineModel;
  plan: Plan;
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

export function paintTimeline(context: CanvasRenderingContext2D, p: Picture): void {
  context.textBaseline = "middle";
  grid(context, p);
  context.save();
  context.beginPath();
  context.rect(GUTTER, RULER, p.width - GUTTER, p.height - RULER);
  context.clip();
  p.model.rows.forEach((row, number) => {
    const y = (p.plan.rows[number] as number) + RULER - p.scroll;
    if (y > p.height || y + ROW < RULER) return;
    slices(context, p, row, y);
  });
  for (const counter of p.plan.counters) drawCounter(context, p, counter);
  if (p.critical) chain(context, p, p.model.data.critical);
  if (p.selected >= 0)
    for (const flow of p.model.flows(p.selected)) arrow(context, p, flow, colour("accent"));
  context.restore();
  names(context, p);
  p.overview.paint(context, p.window, GUTTER, p.width - GUTTER);
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
  const [first, last] = model.between(row, window.from, window.to);
  const height = ROW - 2;
  context.font = `11px ${SANS}`;
  context.textAlign = "left";
  let drawn = -1; // pixel that already has a slice: more of them would not be seen
  for (let k = first; k < last; k++) {
    const slice = row.slices[k] as number;
    const left = Math.max(GUTTER - 2, x(p, model.start(slice)));
    const right = Math.min(p.width + 2, x(p, model.stop(slice)));
    const width = right - left;
    const special = slice === p.selected || (p.marked?.has(slice) ?? false);
    if (width < 1 && Math.floor(left) === drawn && !special) continue;
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
    if (width > 26) label(context, model.name(slice), SIGNS[role] ?? "", left, y, width);
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
  if (text) context.fillText(text, left + 5, y + ROW / 2 - 0.5, width - 8);
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
  const { model, plan, window } = p;
  if (model.stop(from) < window.from && model.start(to) < window.from) return;
  if (model.stop(from) > window.to && model.start(to) > window.to) return;
  const middle = (slice: number): number =>
    (plan.rows[model.rowOf[slice] as number] as number) + RULER - p.scroll + ROW / 2;
  const [x1, y1, x2, y2] = [
    x(p, model.stop(from)),
    middle(from),
    x(p, model.start(to)),
    middle(to),
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

function drawCounter(
  context: CanvasRenderingContext2D,
  p: Picture,
  counter: Plan["counters"][number],
): void {
  const { data, most } = counter;
  const base = counter.y + RULER - p.scroll + COUNTER;
  if (base < 0 || base - COUNTER > p.height || !most) return;
  const value = (v: number): number => base - (v / most) * (COUNTER - 4);
  context.beginPath();
  let [pixel, end] = [-Infinity, 0];
  for (let k = 0; k < data.times.length; k++) {
    const left = x(p, data.times[k] as number);
    const next = data.times[k + 1];
    if (next !== undefined && x(p, next) < GUTTER) continue;
    if (left > p.width) break;
    if (left - pixel < 0.4 && next !== undefined) continue;
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

function names(context: CanvasRenderingContext2D, p: Picture): void {
  context.fillStyle = colour("panel");
  context.fillRect(0, 0, GUTTER, p.height);
  context.fillStyle = colour("border");
  context.fillRect(GUTTER - 1, 0, 1, p.height);
  context.fillRect(0, RULER - 1, p.width, 1);
  context.save();
  context.beginPath();
  context.rect(0, RULER, GUTTER - 6, p.height - RULER);
  context.clip();
  context.textAlign = "left";
  for (const { text, y } of p.plan.heads) {
    context.font = `600 12px ${SANS}`;
    context.fillStyle = colour("text");
    context.fillText(text, 10, y + RULER - p.scroll + GROUP_HEAD / 2 + 2);
  }
  for (const { text, y } of p.plan.names) {
    context.font = `12px ${SANS}`;
    context.fillStyle = colour("faint-text");
    context.fillText(text, 18, y + RULER - p.scroll + ROW / 2, GUTTER - 28);
  }
  for (const { data, y, most } of p.plan.counters) {
    context.font = `600 12px ${SANS}`;
    context.fillStyle = colour("text");
    context.fillText(
      data.device === null ? data.name : `${data.name} ${data.device}`,
      10,
      y + RULER - p.scroll + 14,
      GUTTER - 18,
    );
    context.font = `11px ${SANS}`;
    context.fillStyle = colour("faint-text");
    context.fillText(
      `up to ${figure(most, data.unit)}`,
      18,
      y + RULER - p.scroll + 32,
      GUTTER - 28,
    );
  }
  context.restore();
}

/** Row under a pixel, -1 for none. */
export function rowAt(plan: Plan, scroll: number, y: number): number {
  const at = y - RULER + scroll;
  return y < RULER ? -1 : plan.rows.findIndex((top) => at >= top && at < top + ROW);
}

export const rowTop = (plan: Plan, row: number): number => plan.rows[row] as number;
