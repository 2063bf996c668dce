// Wraps the rows of a diagram into columns, so that long diagrams fit into a window.

import { BOX_HEIGHT, type Diagram, type Link, boxWidth } from "./diagram";
import {
  LANE_GAP,
  LANE_HEAD,
  type Layout,
  PADDING,
  ROW_GAP,
  column,
  curve,
  emptyLayout,
  lanesOf,
  line,
} from "./layout";
import { type Rows, assignRows } from "./rows";

/** What a drawing should fit; its shape matters more than its size. */
export interface Room {
  width: number;
  height: number;
}

const PITCH = BOX_HEIGHT + ROW_GAP;
const COLUMN_GAP = 56;
const BESIDE = 60; // pixels that rails and brackets of a lane take, about
const LEAST = 4; // rows of a column
const WORTH = 1.25; // wrapping has to make a drawing so much larger
const NEXT = 2; // rows; links from the end of a column to the beginning of the next are drawn

/** Place a diagram, in as many columns as make it largest in a window. */
export function layout(diagram: Diagram, room?: Room): Layout {
  const rows = assignRows(diagram, lanesOf(diagram).length > 1);
  const cuts = room ? cutsFor(diagram, rows, room) : [0];
  if (cuts.length < 2) return column(diagram, rows);
  return sideBySide(
    diagram,
    rows,
    cuts.map((first, at) => [first, cuts[at + 1] ?? rows.total]),
  );
}

/** First rows of columns. */
function cutsFor(diagram: Diagram, rows: Rows, room: Room): number[] {
  const widths = rowWidths(diagram, rows);
  const most = Math.floor(rows.total / LEAST);
  let [best, bestScale] = [1, 0];
  for (let count = 1; count <= most; count = Math.max(count + 1, Math.floor(count * 1.06))) {
    const length = Math.ceil(rows.total / count);
    let width = -COLUMN_GAP;
    for (let first = 0; first < rows.total; first += length) {
      width += COLUMN_GAP + widthOf(widths, first, Math.min(rows.total, first + length));
    }
    const height = LANE_HEAD + length * PITCH;
    const scale = Math.min(1, room.width / width, room.height / height);
    if (scale > bestScale * (best === 1 ? WORTH : 1)) [best, bestScale] = [count, scale];
  }
  return cutWhereLittlePasses(diagram, rows, best);
}

/** Pixels that the boxes of each lane take, by row. */
function rowWidths(diagram: Diagram, rows: Rows): Float64Array[] {
  const lanes = new Map(lanesOf(diagram).map((lane, at) => [lane, at]));
  const widths = [...lanes].map(() => new Float64Array(rows.total));
  diagram.boxes.forEach((box, number) => {
    const lane = widths[lanes.get(box.lane ?? -1) ?? 0] as Float64Array;
    const row = rows.row[number] as number;
    lane[row] = (lane[row] as number) + boxWidth(box) + 18;
  });
  return widths;
}

function widthOf(widths: Float64Array[], first: number, end: number): number {
  let total = 0;
  for (const lane of widths) {
    let widest = 0;
    for (let row = first; row < end; row++) widest = Math.max(widest, lane[row] as number);
    total += widest + 2 * PADDING + LANE_GAP + BESIDE;
  }
  return total;
}

/** Even cuts, moved a little to where fewer links pass. */
function cutWhereLittlePasses(diagram: Diagram, rows: Rows, count: number): number[] {
  const passing = new Int32Array(rows.total + 1);
  for (const { source, target } of diagram.links) {
    const [from, to] = [rows.row[source] as number, rows.row[target] as number];
    if (from >= to) continue;
    passing[from + 1] = (passing[from + 1] as number) + 1;
    passing[to + 1] = (passing[to + 1] as number) - 1;
  }
  for (let row = 1; row <= rows.total; row++)
    passing[row] = (passing[row] as number) + (passing[row - 1] as number);
  const cuts = [0];
  const length = rows.total / count;
  const slack = Math.floor(length * 0.12);
  for (let number = 1; number < count; number++) {
    const even = Math.round(number * length);
    let best = even;
    for (let row = even - slack; row <= even + slack; row++) {
      const better = (passing[row] as number) - (passing[best] as number);
      if (better < 0 || (!better && Math.abs(row - even) < Math.abs(best - even))) best = row;
    }
    if (best > (cuts.at(-1) as number)) cuts.push(best);
  }
  return cuts;
}

/** A diagram of the boxes in some rows, with their numbers in the whole diagram. */
interface Part {
  diagram: Diagram;
  rows: Rows;
  boxes: number[]; // in the whole diagram
  links: number[];
}

function sideBySide(diagram: Diagram, rows: Rows, spans: [number, number][]): Layout {
  const result = emptyLayout(diagram, rows);
  const columnOf = new Int32Array(diagram.boxes.length);
  for (const part of parts(diagram, rows, spans, columnOf)) append(result, part, spans);
  result.width -= COLUMN_GAP;
  diagram.links.forEach((link, at) => {
    const [from, to] = [columnOf[link.source] as number, columnOf[link.target] as number];
    if (from !== to) across(result, link, at, from, to);
  });
  return result;
}

function parts(
  diagram: Diagram,
  rows: Rows,
  spans: [number, number][],
  columnOf: Int32Array,
): Part[] {
  const places = new Int32Array(diagram.boxes.length);
  const found: Part[] = spans.map(([first, end]) => ({
    diagram: { boxes: [], links: [], lanes: diagram.lanes, spans: [] },
    rows: {
      row: new Int32Array(),
      total: end - first,
      collective: rows.collective.slice(first, end),
    },
    boxes: [],
    links: [],
  }));
  const columnOfRow = new Int32Array(rows.total);
  spans.forEach(([first, end], at) => columnOfRow.fill(at, first, end));
  diagram.boxes.forEach((box, number) => {
    const at = columnOfRow[rows.row[number] as number] as number;
    const part = found[at] as Part;
    columnOf[number] = at;
    places[number] = part.boxes.push(number) - 1;
    part.diagram.boxes.push(box);
  });
  found.forEach((part, at) => {
    const [first] = spans[at] as [number, number];
    part.rows.row = Int32Array.from(part.boxes, (box) => (rows.row[box] as number) - first);
  });
  const place = (box: number): number => places[box] as number;
  diagram.links.forEach((link, number) => {
    if (columnOf[link.source] !== columnOf[link.target]) return;
    const part = found[columnOf[link.source] as number] as Part;
    part.links.push(number);
    const ends = { source: place(link.source), target: place(link.target) };
    part.diagram.links.push({ ...link, ...ends });
  });
  for (const span of diagram.spans) {
    const mine = new Map<number, number[]>();
    for (const box of span.boxes) {
      const at = columnOf[box] as number;
      const boxes = mine.get(at);
      if (boxes) boxes.push(place(box));
      else mine.set(at, [place(box)]);
    }
    for (const [at, boxes] of mine) found[at]?.diagram.spans.push({ ...span, boxes });
  }
  return found;
}

/** Place a part to the right of the parts placed so far. */
function append(result: Layout, part: Part, spans: [number, number][]): void {
  const made = column(part.diagram, part.rows, result.columns.length > 0);
  const x = result.width;
  const [first, end] = spans[result.columns.length] as [number, number];
  const box = (number: number): number => part.boxes[number] as number;
  part.boxes.forEach((number, at) => {
    result.x[number] = (made.x[at] as number) + x;
    result.y[number] = made.y[at] as number;
    result.h[number] = made.h[at] as number;
  });
  result.tops.set(made.tops, first);
  for (const row of made.byRow) result.byRow.push(row.map(box));
  for (const route of made.routes) {
    const points = route.points.map((value, at) => (at % 2 ? value : value + x));
    const [left, right] = [route.left + x, route.right + x];
    result.routes.push({ ...route, points, left, right, link: part.links[route.link] as number });
  }
  for (const lane of made.lanes) result.lanes.push({ ...lane, x: lane.x + x });
  for (const bracket of made.brackets) result.brackets.push({ ...bracket, x: bracket.x + x });
  for (const bus of made.buses) {
    const ports = bus.ports.map((port) => port + x);
    result.buses.push({
      ...bus,
      box: box(bus.box),
      left: bus.left + x,
      right: bus.right + x,
      ports,
    });
  }
  result.columns.push({ x, width: made.width, first, end });
  result.width += made.width + COLUMN_GAP;
  result.height = Math.max(result.height, made.height);
}

/** A link to another column: a line to the beginning of the next one, else far. */
function across(result: Layout, link: Link, at: number, from: number, to: number): void {
  const middle = (box: number): number => (result.x[box] as number) + (result.w[box] as number) / 2;
  const [x1, x2] = [middle(link.source), middle(link.target)];
  const y1 = (result.y[link.source] as number) + (result.h[link.source] as number);
  const y2 = result.y[link.target] as number;
  const leaving = result.columns[from] as Layout["columns"][number];
  const entered = result.columns[to] as Layout["columns"][number];
  const near =
    to === from + 1 &&
    (result.row[link.source] as number) >= leaving.end - NEXT &&
    (result.row[link.target] as number) < entered.first + NEXT;
  if (!near) {
    result.routes.push(curve(at, x1, y1, x2, y2, true));
    return;
  }
  const x = entered.x - COLUMN_GAP / 2 + (at % 5) * 4 - 8;
  result.routes.push(line(at, [x1, y1, x1, y1 + 12, x, y1 + 12, x, y2 - 12, x2, y2 - 12, x2, y2]));
}
