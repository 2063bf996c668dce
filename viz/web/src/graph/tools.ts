// The controls above the graph.

import type { Controls } from "../controls";
import { choice } from "../dom";
import { zoomButtons } from "../panel";
import { kindOf, kinds } from "./levels";
import type { GraphModel } from "./model";

export const READ = "read"; // folded as far as can be read

/** What the controls ask for. */
export interface Wishes {
  fold: (kind: string) => void;
  replicas: (one: boolean) => void;
  colour: (by: string) => void;
  critical: (on: boolean) => void;
  zoom: (factor: number) => void;
  fit: () => void;
}

export interface Tools {
  elements: HTMLElement[];
  levels: HTMLSelectElement | null; // what is shown, of the kinds of groups
}

/**
 * @param folded the groups that are folded at first
 * @param one whether equal devices are one at first
 * @param colours what boxes can be coloured by
 */
export function graphTools(
  model: GraphModel,
  controls: Controls,
  folded: Set<number>,
  one: boolean,
  colours: [string, string][],
  wishes: Wishes,
): Tools {
  const { groups, twins } = model.data;
  const elements: HTMLElement[] = [];
  let levels: HTMLSelectElement | null = null;
  const names = kinds(groups).map((kind): [string, string] => [kind, `${kind}s`]);
  if (names.length) {
    const all: [string, string][] = [[READ, "what can be read"], ...names, ["", "operators"]];
    const made = choice("Show", all, kindOf(groups, folded), wishes.fold);
    levels = made.select;
    elements.push(made.element);
  }
  if (twins.some((twin) => twin !== null))
    elements.push(controls.checkbox("twins", "Equal devices as one", one, wishes.replicas));
  if (colours.length > 1)
    elements.push(controls.choice("colour", "Colour by", colours, "role", wishes.colour));
  if (model.critical.size)
    elements.push(controls.checkbox("critical", "Critical path", false, wishes.critical));
  elements.push(zoomButtons(wishes.zoom, wishes.fit));
  return { elements, levels };
}
