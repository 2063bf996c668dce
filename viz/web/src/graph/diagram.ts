// What is laid out and drawn: boxes in lanes, links between them.

export interface Box {
  label: string;
  detail: string;
  role: string;
  lane: number | null; // device; null for what belongs to all of them
  count: number;
  stacked: boolean; // stands for several operators
  folded: boolean; // opens when asked to
  width?: number; // pixels; what the texts take where it is not given
}

export interface Link {
  source: number;
  target: number;
  order: boolean; // no data flows
}

/** An open group: a bracket beside its boxes. */
export interface Span {
  group: number;
  label: string;
  boxes: number[];
}

export interface Diagram {
  boxes: Box[];
  links: Link[];
  lanes: Map<number, string>;
  spans: Span[];
}

export const BOX_HEIGHT = 40;
export const LABEL_SIZE = 12; // pixels
export const LONGEST = 30; // characters of a line; longer ones lose their middle
const LABEL_WIDTH = 7.3; // of a character at 12 px
const DETAIL_WIDTH = 6.1; // at 10 px

export function boxWidth(box: Box): number {
  if (box.width !== undefined) return box.width;
  const label = Math.min(LONGEST, box.label.length) * LABEL_WIDTH + 18; // the sign of the role
  const detail = Math.min(LONGEST, box.detail.length) * DETAIL_WIDTH;
  return Math.round(Math.max(label, detail, 60) + 22);
}
