// Gives every box a row: below everything it needs, collectives in rows of their own.

import { type Diagram, boxWidth } from "./diagram";

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

export function assignRows(diagram: Diagram, bus: boolean): Rows {
  const order = topological(diagram);
  const place = new Int32Array(order.length);
  order.forEach((box, number) => (place[box] = number));
  const earliest = new Int32Array(order.length);
  const row = new Int32Array(order.length);
  const next: number[][] = diagram.boxes.map(() => []);
  for (const link of diagram.links) {
    if ((place[link.source] as number) < (place[link.target] as number)) {
      next[link.source]?.push(link.target);
    }
  }
  const widths: Map<number, number>[] = [];
  const kinds: (boolean | undefined)[] = [];
  for (const number of order) {
    const box = diagram.boxes[number];
    if (!box) continue;
    let at = earliest[number] as number;
    if (bus && box.lane === null) {
      while (kinds[at] !== undefined) at++;
      kinds[at] = true;
    } else {
      const lane = box.lane ?? 0;
      const width = boxWidth(box) + GAP;
      while (
        kinds[at] ||
        (widths[at]?.get(lane) ?? 0) + width > LANE_WIDEST + (widths[at]?.get(lane) ? 0 : 1e6)
      )
        at++;
      kinds[at] = false;
      const row = (widths[at] ??= new Map());
      row.set(lane, (row.get(lane) ?? 0) + width);
    }
    row[number] = at;
    for (const target of next[number] ?? []) {
      earliest[target] = Math.max(earliest[target] as number, at + 1);
    }
  }
  return squeeze(row, kinds);
}

/** Take out rows that nothing fell into. */
function squeeze(row: Int32Array, kinds: (boolean | undefined)[]): Rows {
  const renumbered: number[] = [];
  const collective: boolean[] = [];
  for (let number = 0; number < kinds.length; number++) {
    renumbered.push(collective.length);
    const kind = kinds[number];
    if (kind !== undefined) collective.push(kind);
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
