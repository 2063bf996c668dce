// All operators of all passes, as far folded as it takes to read them.

import type { PassesData } from "../data";
import { count, tally } from "../format";
import { type Room, layout } from "../graph/columns";
import { type Box, LABEL_SIZE, type Link, type Span } from "../graph/diagram";
import { READABLE } from "../graph/legible";
import { topological } from "../graph/rows";
import { diagramOf } from "./diagram";
import type { Drawn } from "./looks";

const PARTS = 12; // boxes that a box opens to, at most
const TRIES = 16;

/** Operators of one device and role, neighbours in a topological order. */
interface Fold {
  members: number[]; // positions of operators
  parent: number; // -1: none
  inner: number[]; // folds; of the innermost there are none
}

export class Folds {
  private readonly folds: Fold[] = [];
  private readonly innermost: Int32Array; // by operator
  private readonly opened = new Set<number>();
  private fitted = false;

  constructor(
    private readonly data: PassesData,
    private readonly links: [number, number][],
  ) {
    this.innermost = new Int32Array(data.nodes.length).fill(-1);
    const all = data.nodes.map((_, position) => position);
    const order = topological(diagramOf(data, all, links));
    for (const members of alike(data, order, links)) this.grow(members, -1);
  }

  /** Open what can be read in a window, equal folds of all devices at once; only the first call does. */
  fit(room: Room): void {
    if (this.fitted) return;
    this.fitted = true;
    const seen = this.folds.flatMap(({ parent }, number) => (parent < 0 ? [number] : []));
    const tried = new Set<string>();
    for (const number of seen) {
      const name = this.name(number);
      if (tried.size >= TRIES) return;
      if (tried.has(name)) continue;
      tried.add(name);
      const alike = seen.filter((other) => this.name(other) === name);
      for (const one of alike) this.opened.add(one);
      if (this.isReadable(room))
        seen.push(...alike.flatMap((one) => (this.folds[one] as Fold).inner));
      else for (const one of alike) this.opened.delete(one);
    }
  }

  /** What folds of several devices have in common. */
  private name(number: number): string {
    const { members, parent } = this.folds[number] as Fold;
    const { role } = this.data.nodes[members[0] as number] as PassesData["nodes"][number];
    const outer = parent < 0 ? "" : this.name(parent);
    return `${outer}/${role} ${this.box(members).label}`;
  }

  private isReadable(room: Room): boolean {
    const { width, height } = layout(this.drawn().diagram, room);
    return Math.min(room.width / width, room.height / height) >= READABLE / LABEL_SIZE;
  }

  /** Open or close a fold. */
  toggle(number: number): void {
    if (!this.opened.delete(number)) this.opened.add(number);
  }

  /** Open everything around an operator. */
  reveal(position: number): void {
    let at = this.innermost[position] ?? -1;
    for (; at >= 0; at = (this.folds[at] as Fold).parent) this.opened.add(at);
  }

  get state(): string {
    return [...this.opened].sort((a, b) => a - b).join(",");
  }

  set state(text: string) {
    this.fitted = true;
    this.opened.clear();
    for (const one of text.split(",")) if (this.folds[Number(one)]) this.opened.add(Number(one));
  }

  drawn(): Drawn {
    const boxes: Box[] = [];
    const [members, folds]: [number[][], number[]] = [[], []];
    const boxOf = new Int32Array(this.data.nodes.length);
    const numbers = new Map<number, number>(); // box by fold
    this.data.nodes.forEach((_, position) => {
      const fold = this.shownAs(position);
      const known = numbers.get(fold);
      boxOf[position] = known ?? members.length;
      if (known === undefined) {
        if (fold >= 0) numbers.set(fold, members.length);
        folds.push(fold);
        members.push(fold < 0 ? [position] : (this.folds[fold] as Fold).members);
        boxes.push(this.box(members.at(-1) as number[]));
      }
    });
    const { lanes } = diagramOf(
      this.data,
      members.map(([first]) => first as number),
      [],
    );
    const diagram = { boxes, links: this.joined(boxOf), lanes, spans: this.spans(boxOf) };
    return { diagram, members, folds };
  }

  private box(members: number[]): Box {
    const nodes = members.map((at) => this.data.nodes[at] as PassesData["nodes"][number]);
    const [first] = nodes as [(typeof nodes)[number]];
    const { role, device: lane } = first;
    const several = nodes.length > 1;
    const names = new Set(nodes.map(({ name }) => name));
    return {
      label: several
        ? names.size > 1
          ? `${count(nodes.length)} operators`
          : `${first.name} ×${count(nodes.length)}`
        : first.name,
      detail:
        several && names.size > 1
          ? tally(nodes.map(({ name }) => name)).replace(/^.*?: /, "")
          : first.detail,
      role,
      lane,
      count: nodes.length,
      stacked: several,
      folded: several,
    };
  }

  private joined(boxOf: Int32Array): Link[] {
    const seen = new Set<number>();
    return this.links.flatMap(([a, b]) => {
      const [source, target] = [boxOf[a] as number, boxOf[b] as number];
      const key = source * boxOf.length + target;
      if (source === target || seen.has(key)) return [];
      seen.add(key);
      return [{ source, target, order: false }];
    });
  }

  private spans(boxOf: Int32Array): Span[] {
    return [...this.opened]
      .filter((group) => this.isSeen(group))
      .map((group) => {
        const { members } = this.folds[group] as Fold;
        const boxes = [...new Set(members.map((at) => boxOf[at] as number))];
        return { group, label: this.box(members).label, boxes };
      });
  }

  /** The outermost fold around an operator that is not open; -1 for none. */
  private shownAs(position: number): number {
    let shown = -1;
    let at = this.innermost[position] ?? -1;
    for (; at >= 0; at = (this.folds[at] as Fold).parent) if (!this.opened.has(at)) shown = at;
    return shown;
  }

  private isSeen(number: number): boolean {
    for (let at = number; at >= 0; at = (this.folds[at] as Fold).parent)
      if (!this.opened.has(at)) return false;
    return true;
  }

  private grow(members: number[], parent: number): void {
    if (members.length < 2) {
      for (const at of members) this.innermost[at] = parent;
      return;
    }
    const number = this.folds.push({ members, parent, inner: [] }) - 1;
    if (parent >= 0) this.folds[parent]?.inner.push(number);
    for (const at of members) this.innermost[at] = number;
    if (members.length <= PARTS) return;
    const size = Math.max(PARTS, Math.ceil(members.length / PARTS));
    for (let first = 0; first < members.length; first += size)
      this.grow(members.slice(first, first + size), number);
  }
}

/**
 * Operators of one device and role, or collectives of one kind, in lists that do not depend on
 * themselves: where two kinds take turns, a list ends with each turn.
 */
function alike(data: PassesData, order: Int32Array, links: [number, number][]): number[][] {
  const key = data.nodes.map(({ name, role, device }) =>
    role === "collective" ? name.replace(/^fused_/, "") : `${role} ${device}`,
  );
  const place = new Int32Array(order.length);
  order.forEach((at, number) => (place[at] = number));
  const before: number[][] = data.nodes.map(() => []);
  for (const [a, b] of links) if ((place[a] as number) < (place[b] as number)) before[b]?.push(a);
  const tangled = onCircles(key, before);
  const phase = new Int32Array(order.length);
  const lists = new Map<string, number[]>();
  for (const at of order) {
    const mine = key[at] as string;
    if (tangled.has(mine))
      for (const source of before[at] as number[]) {
        const other = key[source] as string;
        if (!tangled.has(other)) continue;
        const turn = (phase[source] as number) + (other === mine ? 0 : 1);
        phase[at] = Math.max(phase[at] as number, turn);
      }
    const name = `${mine} ${phase[at]}`;
    const list = lists.get(name);
    if (list) list.push(at);
    else lists.set(name, [at]);
  }
  return [...lists.values()];
}

/** Keys on circles, and between circles: what is left when ends are taken away again and again. */
function onCircles(key: string[], before: number[][]): Set<string> {
  const left = new Set(key);
  const pairs = new Set<string>();
  before.forEach((sources, at) => {
    for (const source of sources)
      if (key[source] !== key[at]) pairs.add(`${key[source]}\n${key[at]}`);
  });
  const links = [...pairs].map((pair) => pair.split("\n") as [string, string]);
  for (let size = -1; size !== left.size;) {
    size = left.size;
    const inner = links.filter(([a, b]) => left.has(a) && left.has(b));
    for (const one of [...left])
      if (!inner.some(([a]) => a === one) || !inner.some(([, b]) => b === one)) left.delete(one);
  }
  return left;
}
