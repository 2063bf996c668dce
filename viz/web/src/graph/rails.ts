// Rails beside the boxes of a lane, for links that pass rows without boxes of theirs.

export interface Long {
  key: number;
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
  const length = (line: Long): number => line.bottom - line.top;
  const sorted = [...long].sort((a, b) => length(a) - length(b) || a.top - b.top);
  const result = new Map<number, number>();
  for (const { key, top, bottom } of sorted) {
    let x = -Infinity;
    for (let row = top; row <= bottom; row++) x = Math.max(x, edge[row] as number);
    x += gap;
    edge.fill(x, top, bottom + 1);
    result.set(key, x);
  }
  return result;
}
