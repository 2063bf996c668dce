// What has begun and ended at a moment, kept from frame to frame: going on costs what happens.

import type { Visible } from "../graph/fold";
import type { GraphModel } from "../graph/model";

/** Numbers in the order of some times, without those that have none. */
function ordered(times: Float64Array): Int32Array {
  const known: number[] = [];
  times.forEach((time, number) => {
    if (!Number.isNaN(time)) known.push(number);
  });
  return Int32Array.from(known.sort((a, b) => (times[a] as number) - (times[b] as number)));
}

export class Moment {
  known = new Int32Array(); // by box: operators that ran
  running = new Int32Array();
  done = new Int32Array();
  readonly alive = new Set<number>(); // links on which there is a tensor
  changed: number[] = []; // links of which that is different since the moment before
  private shown: Visible | null = null;
  private time = -Infinity;
  private boxOf = new Int32Array(); // by node
  private linkOf = new Int32Array(); // by edge
  private tensors = new Int32Array(); // by link: how many there are
  private readonly orders: { times: Float64Array; order: Int32Array; at: number }[];

  constructor(
    private readonly model: GraphModel,
    start: Float64Array,
    stop: Float64Array,
  ) {
    const made = new Float64Array(model.edges.length).fill(NaN);
    const read = new Float64Array(model.edges.length).fill(NaN);
    model.edges.forEach(({ source, target, vars }, edge) => {
      const [from, to] = [stop[source] as number, stop[target] as number];
      if (vars.length && from < to) [made[edge], read[edge]] = [from, to];
    });
    const columns = [start, stop, made, read];
    this.orders = columns.map((times) => ({ times, order: ordered(times), at: 0 }));
  }

  /** Go to a moment; returns the boxes of which something is different, null for all. */
  go(shown: Visible, time: number): Set<number> | null {
    const anew = shown !== this.shown || time < this.time;
    if (anew) this.begin(shown);
    this.time = time;
    this.changed = [];
    const touched = new Set<number>();
    const box = (node: number): number => {
      const found = this.boxOf[node] as number;
      if (found >= 0) touched.add(found);
      return found;
    };
    this.pass(0, time, (node) => add(this.running, box(node), 1));
    this.pass(1, time, (node) => {
      add(this.running, box(node), -1);
      add(this.done, box(node), 1);
    });
    this.pass(2, time, (edge) => this.count(this.linkOf[edge] as number, 1));
    this.pass(3, time, (edge) => this.count(this.linkOf[edge] as number, -1));
    return anew ? null : touched;
  }

  private pass(column: number, time: number, act: (number: number) => void): void {
    const one = this.orders[column] as (typeof this.orders)[number];
    const { order, times } = one;
    for (; one.at < order.length; one.at++) {
      const number = order[one.at] as number;
      if ((times[number] as number) > time) return;
      act(number);
    }
  }

  private count(link: number, by: number): void {
    if (link < 0) return;
    add(this.tensors, link, by);
    this.changed.push(link);
    if (this.tensors[link]) this.alive.add(link);
    else this.alive.delete(link);
  }

  /** Nothing has happened yet. */
  private begin(shown: Visible): void {
    for (const one of this.orders) one.at = 0;
    const boxes = shown.members.length;
    [this.known, this.running, this.done] = [0, 1, 2].map(() => new Int32Array(boxes)) as [
      Int32Array<ArrayBuffer>,
      Int32Array<ArrayBuffer>,
      Int32Array<ArrayBuffer>,
    ];
    this.alive.clear();
    this.tensors = new Int32Array(shown.linkEdges.length);
    if (shown !== this.shown) {
      this.boxOf = new Int32Array(this.model.nodes.length).fill(-1);
      shown.members.forEach((members, box) => {
        for (const member of members) this.boxOf[member] = box;
      });
      this.linkOf = new Int32Array(this.model.edges.length).fill(-1);
      shown.linkEdges.forEach((edges, link) => {
        for (const edge of edges) this.linkOf[edge] = link;
      });
      this.shown = shown;
    }
    const { order } = this.orders[0] as (typeof this.orders)[number];
    for (const node of order) add(this.known, this.boxOf[node] as number, 1);
  }
}

function add(counts: Int32Array, at: number, by: number): void {
  if (at >= 0) counts[at] = (counts[at] as number) + by;
}
