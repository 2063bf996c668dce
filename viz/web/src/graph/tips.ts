// Tooltips of boxes and links.

import { type Visible, flowText } from "./fold";
import type { GraphModel } from "./model";

export function boxTip(model: GraphModel, shown: Visible, box: number): string[] {
  const data = shown.boxes[box];
  const node = model.node(shown.members[box]?.[0] as number);
  const more = data?.folded ? "click or Enter: open · shift click: select" : (node.line ?? "");
  return [data?.label ?? "", data?.detail ?? "", more];
}

/** What flows along a link, and between whom. */
export function linkTip(model: GraphModel, shown: Visible, link: number): string[] {
  const ends = shown.links[link];
  if (!ends) return [];
  const edges = shown.linkEdges[link] ?? [];
  const [source, target] = [shown.boxes[ends.source], shown.boxes[ends.target]];
  const names = new Set(edges.flatMap((edge) => model.edge(edge).vars));
  const first = [...names].slice(0, 3).map((id) => model.variable(id).name);
  const more = names.size > first.length ? `, and ${names.size - first.length} more` : "";
  return [
    flowText(model, edges),
    first.join(", ") + more,
    `${source?.label ?? ""} → ${target?.label ?? ""}`,
  ];
}
