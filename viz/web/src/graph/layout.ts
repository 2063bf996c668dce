// Places a column of a diagram: a lane per device side by side, rows in the order of execution from
// top to bottom, collectives in a lane between them. A link to the next row is a curve; a longer one
// leaves between the rows, runs on a rail beside its lane and never passes behind a box. Where a link
// goes far, its ends alone are drawn until somebody asks.

import { BOX_HEIGHT, type Diagram, type Link, type Span, boxWidth } from "./diagram";
import { type Item, spread } from "./lane";
import { type Long, rails } from "./rails";
import type { Rows } from "./rows";

export const ROW_GAP = 34;
export const LANE_HEAD = 44;
const ENTERED_HEAD = 60; // of a further column: words at links from others stand above its first row
const PORT_WIDTH = 16;
export const PADDING = 20;
const FAR = 12; // rows
const NEAR = 3; // rows; from forward to backward operators more of them are far
export const LANE_GAP = 28;
export const BRACKET = 23; // width of a column of brackets

export interface Route {
  link: number;
  points: number[]; // x, y, x, y ...; four points of a curve, else a line with corners
  curve: boolean;
  far: boolean; // its ends alone are drawn
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export interface LaneBox {
  lane: number;
  name: string;
  x: number;
  width: number;
  height: number;
}

/** Rows that stand above each other. */
export interface Column {
  x: number;
  width: number;
  first: number;
  end: number; // one behind the last row
}

export interface BusLine {
  box: number;
  y: number;
  left: number;
  right: number;
  ports: number[];
}

export interface Bracket {
  group: number;
  label: string;
  x: number;
  top: number;
  bottom: number;
}

export interface Layout {
  x: Float64Array; // left edge of every box
  y: Float64Array;
  w: Float64Array;
  h: Float64Array;
  row: Int32Array;
  byRow: number[][]; // boxes of every row, left to right
  tops: Float64Array; // y of every row
  routes: Route[];
  lanes: LaneBox[];
  buses: BusLine[];
  brackets: Bracket[];
  columns: Column[];
  width: number;
  height: number;
}

interface LanePlan {
  lane: number;
  rows: Item[][];
  items: Map<number, Item>; // by box
  rails: Map<number, number>; // x by link
  brackets: Map<number, number>; // x by span
  left: number;
  right: number;
}

/** The lanes of a diagram; collectives cross them if there are several. */
export function lanesOf(diagram: Diagram): number[] {
  const numbers = [...diagram.lanes.keys()];
  return numbers.length ? numbers : [0];
}

/** A layout in which nothing has its place yet. */
export function emptyLayout(diagram: Diagram, rows: Rows): Layout {
  const total = diagram.boxes.length;
  return {
    x: new Float64Array(total),
    y: new Float64Array(total),
    w: Float64Array.from(diagram.boxes, boxWidth),
    h: new Float64Array(total),
    row: rows.row,
    byRow: [],
    tops: new Float64Array(rows.total),
    routes: [],
    lanes: [],
    buses: [],
    brackets: [],
    columns: [],
    width: 0,
    height: 0,
  };
}

/** Place boxes that have their rows already. */
export function column(diagram: Diagram, rows: Rows, entered = false): Layout {
  const numbers = lanesOf(diagram);
  const bus = numbers.length > 1;
  const plans = numbers.map((lane) => plan(diagram, rows, lane, bus));
  const result = emptyLayout(diagram, rows);
  for (let row = 0; row < rows.total; row++) result.byRow.push([]);
  stackRows(result, rows, entered ? ENTERED_HEAD : LANE_HEAD);
  sideBySide(diagram, rows, result, plans, bus);
  route(diagram, result, plans);
  result.columns.push({ x: 0, width: result.width, first: 0, end: rows.total });
  result.byRow.forEach((row) =>
    row.sort((a, b) => (result.x[a] as number) - (result.x[b] as number)),
  );
  return result;
}

function plan(diagram: Diagram, rows: Rows, lane: number, bus: boolean): LanePlan {
  const items = new Map<number, Item>();
  const table: Item[][] = Array.from({ length: rows.total }, () => []);
  const here = (box: number): boolean => {
    const device = diagram.boxes[box]?.lane;
    return device === lane || (device === null && !bus);
  };
  const add = (box: number, port: boolean): Item => {
    const found = items.get(box);
    if (found) return found;
    const row = rows.row[box] as number;
    const width = port ? PORT_WIDTH : boxWidth(diagram.boxes[box] as never);
    const item: Item = { box, port, row, width, x: 0, place: 0, pull: 1, near: [] };
    items.set(box, item);
    table[row]?.push(item);
    return item;
  };
  diagram.boxes.forEach((_, box) => here(box) && add(box, false));
  const long: Long[] = [];
  diagram.links.forEach((link, key) => {
    const [from, to] = [here(link.source), here(link.target)];
    const outside = (box: number): boolean => diagram.boxes[box]?.lane === null;
    if (!(from || to) || !((from || outside(link.source)) && (to || outside(link.target)))) return;
    const source = add(link.source, !from);
    const target = add(link.target, !to);
    const weight = (link.order ? 0.1 : 1) / (Math.abs(target.row - source.row) || 1) ** 2;
    source.near.push({ item: target, weight });
    target.near.push({ item: source, weight });
    if (target.row === source.row + 1 || link.order) return;
    if (isFar(diagram, rows.row, link)) return;
    const [top, bottom] = [Math.min(source.row, target.row), Math.max(source.row, target.row)];
    long.push({ key, top, bottom });
  });
  spread(table);
  return { lane, rows: table, items, ...beside(diagram, rows, table, items, long) };
}

/** Rails on the right of the boxes, brackets of open groups on the left. */
function beside(
  diagram: Diagram,
  rows: Rows,
  table: Item[][],
  items: Map<number, Item>,
  long: Long[],
): Pick<LanePlan, "rails" | "brackets" | "left" | "right"> {
  const rightOf = (row: Item[]): number =>
    row.reduce((most, item) => Math.max(most, item.x + item.width / 2), 0);
  const leftOf = (row: Item[]): number =>
    row.reduce((most, item) => Math.max(most, item.width / 2 - item.x), 0);
  const right = Float64Array.from(table, rightOf);
  const left = Float64Array.from(table, leftOf);
  const lines = rails(long, right, Math.min(9, 500 / Math.max(1, long.length)));
  const spans: Long[] = diagram.spans.flatMap((span, key) => {
    const mine = span.boxes.filter((box) => items.get(box)?.port === false);
    if (mine.length < 2) return []; // nothing to hold together
    const at = mine.map((box) => rows.row[box] as number);
    return [{ key, top: least(at), bottom: most(at) }];
  });
  const brackets = rails(spans, left, BRACKET);
  brackets.forEach((x, key) => brackets.set(key, -x));
  return {
    rails: lines,
    brackets,
    left: -Math.max(60, most(left)),
    right: Math.max(60, most(right)),
  };
}

/** Of any number of values: a call cannot take a hundred thousand. */
function most(values: Iterable<number>): number {
  let found = -Infinity;
  for (const value of values) found = Math.max(found, value);
  return found;
}

function least(values: Iterable<number>): number {
  let found = Infinity;
  for (const value of values) found = Math.min(found, value);
  return found;
}

function stackRows(result: Layout, rows: Rows, head: number): void {
  let y = head;
  for (let row = 0; row < rows.total; row++) {
    result.tops[row] = y;
    y += BOX_HEIGHT + ROW_GAP;
  }
  result.height = y - ROW_GAP + PADDING;
  result.row.forEach((row, box) => {
    result.y[box] = result.tops[row] as number;
    result.h[box] = BOX_HEIGHT;
    result.byRow[row]?.push(box);
  });
}

function sideBySide(
  diagram: Diagram,
  rows: Rows,
  result: Layout,
  plans: LanePlan[],
  bus: boolean,
): void {
  const collectives = diagram.boxes.flatMap((box, number) =>
    bus && box.lane === null ? [number] : [],
  );
  const middle = collectives.length ? Math.ceil(plans.length / 2) : -1;
  const widest = Math.max(0, most(collectives.map((box) => result.w[box] as number)));
  let [x, centre] = [0, 0];
  plans.forEach((plan, number) => {
    if (number === middle) {
      centre = x + widest / 2;
      x += widest + LANE_GAP;
    }
    const title = 8 * (diagram.lanes.get(plan.lane)?.length ?? 0);
    const inner = Math.max(plan.right - plan.left, title);
    const shift = x + PADDING - plan.left + (inner - plan.right + plan.left) / 2;
    for (const item of plan.items.values()) {
      item.x += shift;
      if (!item.port) result.x[item.box] = item.x - item.width / 2;
    }
    plan.rails.forEach((at, key) => plan.rails.set(key, at + shift));
    const width = inner + 2 * PADDING;
    const name = diagram.lanes.get(plan.lane) ?? "";
    result.lanes.push({ lane: plan.lane, name, x, width, height: result.height });
    plan.brackets.forEach((at, span) => {
      const { group, label, boxes } = diagram.spans[span] as Span;
      const mine = boxes.filter((box) => plan.items.has(box)).map((box) => rows.row[box] as number);
      const top = result.tops[least(mine)] as number;
      const bottom = (result.tops[most(mine)] as number) + BOX_HEIGHT;
      result.brackets.push({ group, label, x: at + shift + 4, top, bottom });
    });
    x += width + LANE_GAP;
  });
  for (const box of collectives) result.x[box] = centre - (result.w[box] as number) / 2;
  result.width = Math.max(0, x - LANE_GAP);
  for (const box of collectives) {
    const ports = plans.flatMap((plan) => plan.items.get(box)?.x ?? []);
    const y = (result.y[box] as number) + (result.h[box] as number) / 2;
    const left = Math.min(...ports, centre);
    result.buses.push({ box, y, left, right: Math.max(...ports, centre), ports });
  }
}

function route(diagram: Diagram, result: Layout, plans: LanePlan[]): void {
  const drawn = new Set<number>();
  const ends = (item: Item, down: boolean): number => {
    const y = result.tops[item.row] as number;
    if (item.port) return y + BOX_HEIGHT / 2;
    return down ? y + (result.h[item.box] as number) : y;
  };
  for (const plan of plans) {
    diagram.links.forEach((link, at) => {
      const [source, target] = [plan.items.get(link.source), plan.items.get(link.target)];
      if (!source || !target || (source.port && target.port)) return;
      drawn.add(at);
      const [y1, y2] = [ends(source, true), ends(target, false)];
      const shift = (item: Item, down: boolean): number => offset(item, down ? target : source);
      const [x1, x2] = [source.x + shift(source, true), target.x + shift(target, false)];
      const x = plan.rails.get(at);
      if (x === undefined) {
        result.routes.push(curve(at, x1, y1, x2, y2, isFar(diagram, result.row, link)));
        return;
      }
      const low = 5 + (link.source % 4) * 3; // lines that leave at one height stay apart
      const under = (result.tops[source.row] as number) + BOX_HEIGHT + low;
      const over = (result.tops[target.row] as number) - 8 - low;
      result.routes.push(line(at, [x1, y1, x1, under, x, under, x, over, x2, over, x2, y2]));
    });
  }
  diagram.links.forEach((link, at) => {
    if (drawn.has(at)) return; // from lane to lane, or between collectives
    const x = (box: number): number => (result.x[box] as number) + (result.w[box] as number) / 2;
    const y1 = (result.y[link.source] as number) + (result.h[link.source] as number);
    const far = isFar(diagram, result.row, link);
    const y2 = result.y[link.target] as number;
    result.routes.push(curve(at, x(link.source), y1, x(link.target), y2, far));
  });
}

/** Lines leave and enter a box a little towards where they go, so that they stay apart. */
function offset(item: Item, other: Item): number {
  if (item.port) return 0;
  return Math.max(-item.width / 4, Math.min(item.width / 4, (other.x - item.x) * 0.15));
}

/** Whether a link passes so many rows that its line says less than its ends. */
function isFar(diagram: Diagram, row: Int32Array, { source, target }: Link): boolean {
  const rows = Math.abs((row[target] as number) - (row[source] as number));
  const [from, to] = [diagram.boxes[source]?.role, diagram.boxes[target]?.role];
  return rows > (from === "forward" && to === "backward" ? NEAR : FAR);
}

export function curve(
  link: number,
  x1: number,
  y1: number,
  x2: number,
  y2: number,
  far = false,
): Route {
  const bend = Math.max(12, Math.abs(y2 - y1) / 2);
  const points = [x1, y1, x1, y1 + bend, x2, y2 - bend, x2, y2];
  return {
    link,
    points,
    curve: true,
    far,
    left: Math.min(x1, x2),
    right: Math.max(x1, x2),
    top: Math.min(y1, y2 - bend),
    bottom: Math.max(y1 + bend, y2),
  };
}

export function line(link: number, points: number[]): Route {
  return { link, points, curve: false, far: false, ...extent(points) };
}

/** The rectangle around x, y, x, y ... */
export function extent(points: number[]): Pick<Route, "left" | "top" | "right" | "bottom"> {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < points.length; k += 2) {
    const [x, y] = [points[k] as number, points[k + 1] as number];
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < top) top = y;
    if (y > bottom) bottom = y;
  }
  return { left, top, right, bottom };
}
