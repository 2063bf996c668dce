// What a pass changed, equal changes once, with what is next to them.

import type { PassNode } from "../data";
import type { Stage } from "./diagram";

export type Change = "added" | "removed" | "changed";
export const CHANGES = ["added", "removed", "changed"] as const;

/** Some operators of a stage that are worth looking at. */
export interface Excerpt {
  nodes: number[]; // positions: changes, and what is next to them
  links: [number, number][]; // between them, those of the stage before too
  times: Map<number, number>; // how many equal changes a node stands for, itself included
  kinds: number; // different changes
  cut: number; // changed operators that are too many to be shown
  copies: number; // operators that other devices run, too, and that are not shown again
}

/** The stage that is no pass: operators once for each device. */
export const REPLICATION = "replication";

const LARGEST = 60; // operators of one change that are shown
const MOST = 24; // different changes

type Links = [number, number][];

/**
 * @param nodes all operators that there ever were
 * @param position place of an operator by its id
 * @param stage what the pass left
 * @param before what was there before it
 */
export function excerpt(
  nodes: PassNode[],
  position: (id: number) => number,
  stage: Stage,
  before: Stage | undefined,
): Excerpt {
  const changes = new Map<number, Change>();
  for (const kind of CHANGES) for (const id of stage[kind]) changes.set(position(id), kind);
  const copies =
    stage.name === REPLICATION && before ? copiesOf(nodes, position, stage, before) : [];
  for (const copy of copies) changes.delete(copy);
  const links: Links = [];
  const known = new Set<number>();
  const wide = nodes.length + 1;
  for (const [a, b] of [...stage.links, ...(before?.links ?? [])]) {
    const ends: [number, number] = [position(a), position(b)];
    const touched = changes.has(ends[0]) || changes.has(ends[1]);
    const key = ends[0] * wide + ends[1];
    if (!touched || known.has(key)) continue;
    known.add(key);
    links.push(ends);
  }
  const groups = together(changes, links);
  const kinds = alike(nodes, changes, groups, links);
  const times = new Map<number, number>();
  const shown = new Set<number>();
  let cut = 0;
  [...kinds.values()].forEach(({ first, count }, number) => {
    const seen = number < MOST ? first.slice(0, LARGEST) : [];
    cut += (first.length - seen.length) * count;
    for (const node of seen) {
      shown.add(node);
      times.set(node, count);
    }
  });
  const beside = new Set<number>();
  for (const [a, b] of links) {
    if (shown.has(a) && !changes.has(b)) beside.add(b);
    if (shown.has(b) && !changes.has(a)) beside.add(a);
  }
  const others = twinsOf(nodes, beside, shown, links);
  const visible = new Set([...shown, ...beside].filter((node) => !others.has(node)));
  const inside = links.filter(([a, b]) => visible.has(a) && visible.has(b));
  const order = [...visible].sort((a, b) => a - b);
  const left = copies.length + others.size;
  return { nodes: order, links: inside, times, kinds: kinds.size, cut, copies: left };
}

/** Of what is next to collectives, what another device does as well. */
function twinsOf(
  nodes: PassNode[],
  beside: Set<number>,
  shown: Set<number>,
  links: Links,
): Set<number> {
  const bound = new Set<number>(); // next to a change of one device
  for (const ends of links)
    if (ends.some((node) => shown.has(node) && nodes[node]?.device !== null))
      for (const node of ends) bound.add(node);
  const first = new Map<string, number | null>();
  const found = new Set<number>();
  for (const node of [...beside].sort((a, b) => a - b)) {
    const { name, detail, role, device } = nodes[node] as PassNode;
    const what = `${name} ${role} ${detail}`;
    const other = first.get(what);
    if (other === undefined) first.set(what, device);
    else if (other !== device && device !== null && !bound.has(node)) found.add(node);
  }
  return found;
}

/** New operators that do on another device what one of the program does. */
function copiesOf(
  nodes: PassNode[],
  position: (id: number) => number,
  stage: Stage,
  before: Stage,
): number[] {
  const what = (at: number): string => {
    const { name, detail, role } = nodes[at] as PassNode;
    return `${name} ${role} ${detail}`;
  };
  const written = new Set(before.nodes.map((id) => what(position(id))));
  return stage.added
    .map(position)
    .filter((at) => nodes[at]?.device !== null && written.has(what(at)));
}

/** Changed operators that are joined, each in a list. */
function together(changes: Map<number, Change>, links: Links): number[][] {
  const root = new Map<number, number>([...changes.keys()].map((node) => [node, node]));
  const find = (node: number): number => {
    let at = node;
    while (root.get(at) !== at) {
      root.set(at, root.get(root.get(at) as number) as number);
      at = root.get(at) as number;
    }
    return at;
  };
  for (const [a, b] of links) if (changes.has(a) && changes.has(b)) root.set(find(a), find(b));
  const groups = new Map<number, number[]>();
  for (const node of [...changes.keys()].sort((a, b) => a - b)) {
    const key = find(node);
    const members = groups.get(key);
    if (members) members.push(node);
    else groups.set(key, [node]);
  }
  return [...groups.values()];
}

/** One of each: changes of the same operators with the same links. */
function alike(
  nodes: PassNode[],
  changes: Map<number, Change>,
  groups: number[][],
  links: Links,
): Map<string, { first: number[]; count: number }> {
  const groupOf = new Map<number, number>();
  groups.forEach((members, number) => members.forEach((node) => groupOf.set(node, number)));
  const what = (node: number): string =>
    `${changes.get(node) ?? ""} ${nodes[node]?.name ?? ""} ${nodes[node]?.role ?? ""}`;
  const joined: string[][] = groups.map(() => []);
  for (const [a, b] of links) {
    const at = groupOf.get(a) ?? groupOf.get(b);
    if (at !== undefined) joined[at]?.push(`${what(a)}>${what(b)}`);
  }
  const found = new Map<string, { first: number[]; count: number }>();
  groups.forEach((members, number) => {
    const key = [...members.map(what).sort(), ...(joined[number] ?? []).sort()].join("|");
    const same = found.get(key);
    if (same) same.count++;
    else found.set(key, { first: members, count: 1 });
  });
  return found;
}
