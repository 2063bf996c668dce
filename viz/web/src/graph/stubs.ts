// The ends of links that go far: what a box gives to, and takes from, boxes out of sight.

import type { Diagram } from "./diagram";
import type { Layout } from "./layout";

export interface Stub {
  box: number;
  out: boolean; // leaves the box
  text: string;
}

/** Ends of far links, one for what leaves a box and one for what enters it. */
export function stubs(diagram: Diagram, layout: Layout): Stub[] {
  const leaving = new Map<number, number[]>();
  const entering = new Map<number, number[]>();
  for (const { far, link } of layout.routes) {
    const ends = diagram.links[link];
    if (!far || !ends || ends.order) continue;
    put(leaving, ends.source, ends.target);
    put(entering, ends.target, ends.source);
  }
  return [
    ...[...leaving].map(([box, others]) => ({
      box,
      out: true,
      text: `→ ${named(diagram, others)}`,
    })),
    ...[...entering].map(([box, others]) => ({
      box,
      out: false,
      text: `${named(diagram, others)} →`,
    })),
  ];
}

function put(table: Map<number, number[]>, key: number, value: number): void {
  const found = table.get(key);
  if (found) found.push(value);
  else table.set(key, [value]);
}

/** A box by its name, several by their number and what they do. */
function named(diagram: Diagram, boxes: number[]): string {
  if (boxes.length === 1) return diagram.boxes[boxes[0] as number]?.label ?? "";
  const roles = new Set(boxes.map((box) => diagram.boxes[box]?.role ?? ""));
  const role = roles.size === 1 ? ROLES[[...roles][0] as string] : undefined;
  return `${boxes.length} ${role ?? "others"}`;
}

const ROLES: Record<string, string> = {
  forward: "forward operators",
  backward: "backward operators",
  optimize: "updates",
  collective: "collectives",
};
