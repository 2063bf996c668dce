// One lane: the order of boxes in their rows, and their x, near their neighbours.

export interface Item {
  box: number; // a port of a collective carries the collective's number
  port: boolean;
  row: number;
  width: number;
  x: number; // middle
  place: number;
  pull: number; // how much of the graph hangs on it: the main chain stands upright
  near: { item: Item; weight: number }[];
}

const BOX_GAP = 18;
const ORDER_SWEEPS = 8;
const LONG = 120; // rows; longer chains that were pushed aside come back to the middle, slowly
const BACK = 0.97;
const SPREAD_SWEEPS = 9; // odd: the last one goes down, so that chains hang straight from their start

function gap(left: Item, right: Item): number {
  return (left.width + right.width) / 2 + BOX_GAP;
}

/** Order every row by the mean place of its neighbours, sweeping down and up. */
function order(rows: Item[][]): void {
  for (const row of rows) row.forEach((item, number) => (item.place = (number + 0.5) / row.length));
  const crowded = rows.filter((row) => row.length > 1);
  for (let sweep = 0; sweep < ORDER_SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? crowded : [...crowded].reverse()) {
      const wishes = new Map(
        row.map((item) => [item, wish(item, down, (near) => near.place) ?? item.place]),
      );
      row.sort((a, b) => (wishes.get(a) as number) - (wishes.get(b) as number));
      row.forEach((item, number) => (item.place = (number + 0.5) / row.length));
    }
  }
}

/** Weighted mean over the neighbours above (or below, or where there is none, any). */
function wish(item: Item, down: boolean, value: (item: Item) => number): number | null {
  let [sum, mass] = [0, 0];
  for (let pass = 0; pass < 2 && !mass; pass++) {
    for (const { item: other, weight } of item.near) {
      if (pass || other.row < item.row === down) {
        sum += weight * value(other);
        mass += weight;
      }
    }
  }
  return mass ? sum / mass : null;
}

/**
 * Put a row as near to the wishes as its order and gaps allow (least squares): after taking the
 * gaps away the places must not decrease, so neighbours that violate this are pooled.
 */
function settle(row: Item[], wishes: number[]): void {
  const offsets = [0];
  for (let k = 1; k < row.length; k++) {
    offsets.push((offsets[k - 1] as number) + gap(row[k - 1] as Item, row[k] as Item));
  }
  const blocks: { sum: number; mass: number; size: number }[] = [];
  wishes.forEach((value, k) => {
    const mass = (row[k] as Item).pull;
    let block = { sum: (value - (offsets[k] as number)) * mass, mass, size: 1 };
    for (;;) {
      const before = blocks[blocks.length - 1];
      if (!before || before.sum / before.mass < block.sum / block.mass) break;
      blocks.pop();
      block = {
        sum: block.sum + before.sum,
        mass: block.mass + before.mass,
        size: block.size + before.size,
      };
    }
    blocks.push(block);
  });
  let k = 0;
  for (const { sum, mass, size } of blocks) {
    for (let j = 0; j < size; j++, k++) (row[k] as Item).x = sum / mass + (offsets[k] as number);
  }
}

/** Boxes with something above and below are the main chain; what hangs on one side gives way. */
function weigh(rows: Item[][]): void {
  for (const item of rows.flat()) {
    const above = item.near.some(({ item: other }) => other.row < item.row);
    const below = item.near.some(({ item: other }) => other.row > item.row && !other.port);
    item.pull = (above && below ? 1000 : 1) * (item.port ? 0.2 : 1);
  }
}

/** Move everything so that the lane's middle is x = 0. */
function centre(rows: Item[][]): void {
  const items = rows.flat();
  const left = items.reduce((least, item) => Math.min(least, item.x - item.width / 2), Infinity);
  const right = items.reduce((most, item) => Math.max(most, item.x + item.width / 2), -Infinity);
  for (const item of items) item.x -= (left + right) / 2;
}

/** Place the items of a lane around x = 0. */
export function spread(rows: Item[][]): void {
  weigh(rows);
  order(rows);
  for (const row of rows) {
    settle(
      row,
      row.map(() => 0),
    );
    const middle = row.length ? ((row[0] as Item).x + (row[row.length - 1] as Item).x) / 2 : 0;
    for (const item of row) item.x -= middle;
  }
  const back = rows.length > LONG ? BACK : 1;
  for (let sweep = 0; sweep < SPREAD_SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const row of down ? rows : [...rows].reverse()) {
      settle(
        row,
        row.map((item) => back * (wish(item, down, (near) => near.x) ?? 0)),
      );
    }
  }
  centre(rows);
}
