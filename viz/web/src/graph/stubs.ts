// The ends of links that go far: what a box gives to, and takes from, boxes out of sight.

import type { Diagram } from "./diagram";
import type { Layout } from "./layout";

export interface Stub {
  box: number;
  out: boolean; // leaves the box
  texts: string[]; // the same in fewer and fewer words
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
      texts: named(diagram, others).map((name) => `→ ${name}`),
    })),
    ...[...entering].map(([box, others]) => ({
      box,
      out: false,
      texts: named(diagram, others).map((name) => `${name} →`),
    })),
  ];
}

function put(table: Map<number, number[]>, key: number, value: number): void {
  const found = table.get(key);
  if (found) found.push(value);
  else table.set(key, [value]);
}

/** A box by its name, several by their number and what they do. */
function named(diagram: Diagram, boxes: number[]): string[] {
  const roles = new Set(boxes.map((box) => diagram.boxes[box]?.role ?? ""));
  const words = (roles.size === 1 && ROLES[[...roles][0] as string]) || ["others"];
  const counted = words.map((word) => `${boxes.length} ${word}`.trim());
  if (boxes.length > 1) return counted;
  return [diagram.boxes[boxes[0] as number]?.label ?? "", ...counted.slice(1)];
}

const ROLES: Record<string, string[]> = {
  forward: ["forward operators", "forward", ""],
  backward: ["backward operators", "backward", ""],
  optimize: ["updates", ""],
  collective: ["collectives", ""],
};
