// Rails beside the boxes of a lane, for links that pass rows they have no business in.

export interface Long {
  key: number;
  trunk: number; // links of one trunk share a rail
  top: number; // rows
  bottom: number;
}

/**
 * Place vertical lines beside a skyline, short ones first: each runs as near as what it passes
 * allows, and what nests, nests like brackets.
 *
 * @param edge outermost pixel of every row; moved outwards by the lines
 * @param gap distance between lines and from the boxes
 * @returns x by key
 */
export function rails(long: Long[], edge: Float64Array, gap: number): Map<number, number> {
  const trunks = new Map<number, { top: number; bottom: number; keys: number[] }>();
  for (const { key, trunk, top, bottom } of long) {
    const found = trunks.get(trunk) ?? { top, bottom, keys: [] };
    found.top = Math.min(found.top, top);
    found.bottom = Math.max(found.bottom, bottom);
    found.keys.push(key);
    trunks.set(trunk, found);
  }
  const length = (trunk: { top: number; bottom: number }): number => trunk.bottom - trunk.top;
  const sorted = [...trunks.values()].sort((a, b) => length(a) - length(b) || a.top - b.top);
  const result = new Map<number, number>();
  for (const { top, bottom, keys } of sorted) {
    let x = -Infinity;
    for (let row = top; row <= bottom; row++) x = Math.max(x, edge[row] as number);
    x += gap;
    edge.fill(x, top, bottom + 1);
    for (const key of keys) result.set(key, x);
  }
  return result;
}
