// What is drawn of a diagram: where everything is, how it looks, and what of it is in view.

import type { Camera } from "./camera";
import { BOX_HEIGHT, type Diagram } from "./diagram";
import type { Layout } from "./layout";
import type { Stub } from "./stubs";

export const SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif";
export const MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

export interface Look {
  fill: string;
  line: string;
  dim: boolean;
  sign: string; // stands before the label
  detail: string;
  dashed: boolean;
  loud: boolean; // the detail is what counts
  strong: "" | "marked" | "critical"; // a thicker frame
}

export interface Scene {
  diagram: Diagram;
  layout: Layout;
  look: (box: number) => Look | null; // null: not there
  linkState: (link: number) => "plain" | "strong" | "critical" | "dim" | "hidden";
  linkLabel: (link: number) => string;
  selected: number;
  hovered: number;
  stubs: Stub[];
  played?: () => Iterable<number> | null; // links that stand out at the playhead; null without one
  over?: (context: CanvasRenderingContext2D, camera: Camera) => void; // what lies above all
}

/** Nothing, until it is known how large the window is. */
export function emptyScene(): Scene {
  return {
    diagram: { boxes: [], links: [], lanes: new Map(), spans: [] },
    layout: {
      x: new Float64Array(),
      y: new Float64Array(),
      w: new Float64Array(),
      h: new Float64Array(),
      row: new Int32Array(),
      byRow: [],
      tops: new Float64Array(),
      routes: [],
      lanes: [],
      buses: [],
      brackets: [],
      columns: [],
      width: 1,
      height: 1,
    },
    look: () => null,
    linkState: () => "hidden",
    linkLabel: () => "",
    selected: -1,
    hovered: -1,
    stubs: [],
  };
}

export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The rows that touch an area, column by column. */
export function* rowsIn(layout: Layout, area: Area): Generator<number> {
  for (const { x, width, first, end } of layout.columns) {
    if (x > area.right || x + width < area.left) continue;
    let [low, high] = [first, end];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((layout.tops[middle] as number) + BOX_HEIGHT < area.top) low = middle + 1;
      else high = middle;
    }
    for (let row = low; row < end && (layout.tops[row] as number) <= area.bottom; row++) yield row;
  }
}
