// The controls above the timeline.

import type { Controls } from "../controls";
import { zoomButtons } from "../panel";
import type { Board } from "./board";
import type { TimelineModel } from "./model";
import { ORDERS } from "./tracks";

const SHOWN: Record<string, string> = {
  "": "operators",
  blocks: "equal layers",
  layers: "layers",
};

/** What the controls ask for. */
export interface Wishes {
  critical: (on: boolean) => void;
  arrange: (chosen: Parameters<Board["arrange"]>[0]) => void;
  zoom: (factor: number) => void;
  fit: () => void;
}

/**
 * @param layers what is shown of them at first
 * @param hidden says how many tracks are hidden
 */
export function timelineTools(
  model: TimelineModel,
  controls: Controls,
  layers: string,
  hidden: HTMLElement,
  { critical, arrange, zoom, fit }: Wishes,
): HTMLElement[] {
  const tools: HTMLElement[] = [];
  if (model.data.critical.length)
    tools.push(controls.checkbox("critical", "Critical path", false, critical));
  tools.push(
    controls.choice("order", "Tracks by", ORDERS, "device", (order) => arrange({ order })),
    controls.checkbox("apart", "Forward and backward apart", false, (apart) => arrange({ apart })),
    hidden,
  );
  const known = ["", ...model.layers].map((key): [string, string] => [key, SHOWN[key] ?? key]);
  if (known.length > 1)
    tools.push(
      controls.choice("layers", "Show", known, layers, (chosen) => arrange({ layers: chosen })),
    );
  return [...tools, zoomButtons(zoom, fit)];
}
