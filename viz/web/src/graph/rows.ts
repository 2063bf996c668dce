// Gives every box a row: below everything it needs, collectives in rows of their own.

import { type Box, type Diagram, boxWidth } from "./diagram";

export const LANE_WIDEST = 820; // pixels of boxes side by side before a row is broken
const GAP = 18;

/** Boxes in an order that respects links; where links form a circle, the first box goes first. */
export function topological(diagram: Diagram): Int32Array {
  const total = diagram.boxes.length;
  const waiting = new Int32Array(total);
  const next: number[][] = diagram.boxes.map(() => []);
  for (const link of diagram.links) {
    next[link.source]?.push(link.target);
    waiting[link.target] = (waiting[link.target] ?? 0) + 1;
  }
  const done = new Uint8Array(total);
  const order = new Int32Array(total);
  const heap = new Heap();
  for (let box = 0; box < total; box++) if (!waiting[box]) heap.push(box);
  let forced = 0;
  for (let filled = 0; filled < total;) {
    let box = heap.pop();
    if (box === undefined) {
      while (done[forced]) forced++;
      box = forced;
    }
    if (done[box]) continue;
    done[box] = 1;
    order[filled++] = box;
    for (const target of next[box] ?? []) {
      waiting[target] = (waiting[target] ?? 0) - 1;
      if (!waiting[target]) heap.push(target);
    }
  }
  return order;
}

export interface Rows {
  row: Int32Array; // by box
  total: number;
  collective: boolean[]; // by row
}

/**
 * Give every box the first row below all it needs that has room for it. What needs nothing stands
 * right above its first reader; what is joined with nothing, where it is executed.
 */
export function assignRows(diagram: Diagram, bus: boolean): Rows {
  const order = topological(diagram);
  const next = successors(diagram, order);
  const rows = new RowTable();
  const earliest = new Int32Array(order.length);
  const row = new Int32Array(order.length);
  const lonely = new Uint8Array(order.length).fill(1);
  for (const { source, target } of diagram.links) lonely[source] = lonely[target] = 0;
  const latest = new Map<number, number>(); // row of the last box of each lane
  for (const number of order) {
    const box = diagram.boxes[number] as Box;
    const lane = box.lane ?? 0;
    if (lonely[number]) earliest[number] = latest.get(lane) ?? 0;
    const collective = bus && box.lane === null;
    const at = rows.place(earliest[number] as number, lane, collective ? null : boxWidth(box));
    row[number] = at;
    latest.set(lane, at);
    for (const target of next[number] ?? []) {
      earliest[target] = Math.max(earliest[target] as number, at + 1);
    }
  }
  const needed = new Set(diagram.links.map((link) => link.target));
  for (const number of order) {
    const box = diagram.boxes[number] as Box;
    if (needed.has(number) || lonely[number] || box.lane === null) continue;
    const reader = Math.min(...(next[number] ?? []).map((target) => row[target] as number));
    row[number] = rows.lower(row[number] as number, reader - 1, box.lane, boxWidth(box));
  }
  return squeeze(row, rows.kinds);
}

/** Boxes that need a box, links that would go back in the order left out. */
function successors(diagram: Diagram, order: Int32Array): number[][] {
  const place = new Int32Array(order.length);
  order.forEach((box, number) => (place[box] = number));
  const next: number[][] = diagram.boxes.map(() => []);
  for (const { source, target } of diagram.links) {
    if ((place[source] as number) < (place[target] as number)) next[source]?.push(target);
  }
  return next;
}

/** Which rows are taken by what: boxes of lanes, or one collective. */
class RowTable {
  readonly kinds: (boolean | undefined)[] = []; // true: a collective
  private readonly widths: Map<number, number>[] = [];

  /** Put a box of a lane, or with width null a collective, into the first row that has room. */
  place(from: number, lane: number, width: number | null): number {
    let at = from;
    if (width === null) {
      while (this.kinds[at] !== undefined) at++;
      this.kinds[at] = true;
      return at;
    }
    while (!this.hasRoom(at, lane, width)) at++;
    this.take(at, lane, width);
    return at;
  }

  /** Move a box down to the lowest row with room; returns where it is then. */
  lower(from: number, to: number, lane: number, width: number): number {
    for (let at = to; at > from; at--) {
      if (this.kinds[at] !== false || !this.hasRoom(at, lane, width)) continue;
      this.take(at, lane, width);
      this.take(from, lane, -width - 2 * GAP);
      return at;
    }
    return from;
  }

  private hasRoom(at: number, lane: number, width: number): boolean {
    const used = this.widths[at]?.get(lane) ?? 0;
    return !this.kinds[at] && (used === 0 || used + width + GAP <= LANE_WIDEST);
  }

  private take(at: number, lane: number, width: number): void {
    this.kinds[at] = false;
    const row = (this.widths[at] ??= new Map());
    row.set(lane, (row.get(lane) ?? 0) + width + GAP);
  }
}

/** Take out rows in which nothing stands. */
function squeeze(row: Int32Array, kinds: (boolean | undefined)[]): Rows {
  const used = new Set(row);
  const renumbered: number[] = [];
  const collective: boolean[] = [];
  for (let number = 0; number < kinds.length; number++) {
    renumbered.push(collective.length);
    if (used.has(number)) collective.push(kinds[number] ?? false);
  }
  return {
    row: row.map((number) => renumbered[number] ?? 0),
    total: collective.length,
    collective,
  };
}

/** A binary heap of numbers, smallest first. */
class Heap {
  private items: number[] = [];

  push(value: number): void {
    const { items } = this;
    let at = items.push(value) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((items[parent] as number) <= value) break;
      items[at] = items[parent] as number;
      at = parent;
    }
    items[at] = value;
  }

  pop(): number | undefined {
    const { items } = this;
    const top = items[0];
    const last = items.pop();
    if (!items.length || last === undefined) return top;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && (items[child + 1] as number) < (items[child] as number))
        child++;
      if ((items[child] as number) >= last) break;
      items[at] = items[child] as number;
      at = child;
    }
    items[at] = last;
    return top;
  }
}
