// The targets of arrow keys.

import type { Diagram } from "./diagram";
import type { Layout } from "./layout";

/** The nearest box along the links (down, up), or the next one of the row; -1 for none. */
export function nextBox(
  diagram: Diagram,
  layout: Layout,
  selected: number,
  across: number,
  down: number,
): number {
  if (selected < 0) return layout.byRow[0]?.[0] ?? -1;
  const from = layout.row[selected] as number;
  if (across) {
    const row = layout.byRow[from] ?? [];
    return row[row.indexOf(selected) + across] ?? -1;
  }
  const ends = diagram.links.flatMap((link) => {
    if (down > 0) return link.source === selected ? [link.target] : [];
    return link.target === selected ? [link.source] : [];
  });
  const distance = (box: number): number =>
    Math.abs((layout.row[box] as number) - from) * 1e4 +
    Math.abs((layout.x[box] as number) - (layout.x[selected] as number));
  return ends.sort((a, b) => distance(a) - distance(b))[0] ?? -1;
}
