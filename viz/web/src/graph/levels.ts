// How far a graph is folded: to groups of a kind, or not at all.

import type { GroupData } from "../data";

/** Kinds of groups, from the outside to the inside. */
export function kinds(groups: GroupData[]): string[] {
  const depths = new Map<string, number>();
  groups.forEach((group, number) => {
    depths.set(group.kind, Math.min(depths.get(group.kind) ?? Infinity, depth(groups, number)));
  });
  if (depths.has("loop")) depths.set("loop", Infinity); // the innermost, also where no group is around
  return [...depths].sort((a, b) => a[1] - b[1]).map(([kind]) => kind);
}

/** How many groups are around a group. */
export function depth(groups: GroupData[], number: number): number {
  let [steps, parent] = [0, groups[number]?.parent ?? null];
  while (parent !== null) {
    steps++;
    parent = groups[parent]?.parent ?? null;
  }
  return steps;
}

/** Groups to fold so that those of a kind, and what is in none of them, are seen. */
export function foldedAt(groups: GroupData[], kind: string): Set<number> {
  const order = kinds(groups);
  const level = order.indexOf(kind);
  const inside = (group: GroupData): boolean => level >= 0 && order.indexOf(group.kind) >= level;
  return new Set(groups.flatMap((group, number) => (inside(group) ? [number] : [])));
}

/** The outermost kind of the folded groups; "" for none. */
export function kindOf(groups: GroupData[], folded: Set<number>): string {
  const found = new Set([...folded].map((number) => groups[number]?.kind));
  return kinds(groups).find((kind) => found.has(kind)) ?? "";
}
