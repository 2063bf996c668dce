// How far a graph opens by itself: as far as its texts can be read when all of it is in the window.

import type { GroupData } from "../data";
import { type Room, layout } from "./columns";
import { LABEL_SIZE } from "./diagram";
import { type FoldState, type Visible, countBoxes, visible } from "./fold";
import { depth, foldedAt, kinds } from "./levels";
import type { GraphModel } from "./model";

/** Pixels of a label below which it is hard to read. */
export const READABLE = 8;
const BOX = 120 * 74; // pixels of the drawing that a box takes with what is around it, at least
const TRIES = 16;
const NETWORK = ["forward", "backward"];
const LAST = 100; // deeper than any group

/**
 * What to fold so that everything is readable at once; all groups if nothing less will do. Where that
 * would hide the network, or all of its forward pass, equal devices are one if `mayJoin`. If that does
 * not help either, one device is as wide as all of them, and what follows is beside the window.
 */
export function foldedToRead(
  model: GraphModel,
  state: FoldState,
  room: Room | undefined,
  mayJoin: boolean,
): FoldState {
  if (!room) return state;
  const tries = [state, ...(mayJoin && !state.replicas ? [{ ...state, replicas: true }] : [])];
  const narrow: FoldState[] = [];
  for (const tried of tries) {
    const found = { ...tried, folded: readable(model, tried, room) };
    if (!hides(model, found, ["forward"])) return found;
    narrow.push(found);
  }
  const last = tries.at(-1) as FoldState;
  const wide = { ...last, folded: readable(model, last, room, true) };
  if (!hides(model, wide, ["forward"])) return wide;
  return narrow.find((found) => !hides(model, found, NETWORK)) ?? wide;
}

function readable(model: GraphModel, state: FoldState, room: Room, isWide = false): Set<number> {
  const { groups } = model.data;
  const levels = ["", ...kinds(groups).reverse()];
  for (const kind of levels) {
    const folded = kind ? foldedAt(groups, kind) : new Set<number>();
    if (fits(model, { ...state, folded }, room, isWide))
      return kind ? opened(model, { ...state, folded }, room, isWide) : folded;
  }
  return opened(model, { ...state, folded: new Set(groups.keys()) }, room, isWide);
}

/** Whether nothing is seen of some roles, or of the network, but one box for each task or role. */
function hides(model: GraphModel, state: FoldState, roles: string[]): boolean {
  const { boxes, groups } = visible(model, state);
  const isStage = (group: number): boolean => model.data.groups[group]?.kind === "stage";
  return [roles, NETWORK].some((some) => {
    const shown = groups.filter((_, box) => some.includes(boxes[box]?.role ?? ""));
    return shown.some(isStage) && shown.every((group) => group < 0 || isStage(group));
  });
}

/**
 * Open one group after the other, equal ones of all devices at once, while there is room: outer ones
 * first, collectives and updates last.
 */
function opened(model: GraphModel, state: FoldState, room: Room, isWide: boolean): Set<number> {
  const { groups } = model.data;
  let { folded } = state;
  const tried = new Set<string>();
  let shown = visible(model, { ...state, folded });
  for (let tries = 0; tries < TRIES; tries++) {
    const rank = (box: number): number =>
      depth(groups, shown.groups[box] as number) +
      (NETWORK.includes(shown.boxes[box]?.role ?? "") ? 0 : LAST);
    const next = shown.groups
      .flatMap((group, box) => (group >= 0 && !tried.has(name(groups, group)) ? [box] : []))
      .sort((a, b) => rank(a) - rank(b))
      .map((box) => shown.groups[box] as number)[0];
    if (next === undefined) break;
    tried.add(name(groups, next));
    const more = new Set(folded);
    for (const group of shown.groups)
      if (group >= 0 && name(groups, group) === name(groups, next)) more.delete(group);
    if (!fits(model, { ...state, folded: more }, room, isWide)) continue;
    folded = more;
    shown = visible(model, { ...state, folded });
  }
  return folded;
}

/** What groups of several devices have in common. */
function name(groups: GroupData[], group: number): string {
  const { label, kind } = groups[group] as GroupData;
  return `${kind} ${label.replace(/ on device \d+$/, "").replace(/_dev\d+.*/, "")}`;
}

/** Whether all of it can be read at once; if `isWide`, the lanes of further devices may be beside the window. */
function fits(model: GraphModel, state: FoldState, room: Room, isWide: boolean): boolean {
  const scale = READABLE / LABEL_SIZE;
  const lanes = isWide ? new Set(model.nodes.map((node) => node.device)).size : 1;
  if (countBoxes(model, state) * BOX * scale ** 2 > lanes * room.width * room.height) return false;
  return scaleOf(visible(model, state), room, isWide) >= scale;
}

function scaleOf(shown: Visible, room: Room, isWide: boolean): number {
  const { width, height } = layout(shown, room);
  return Math.min(isWide ? Number.POSITIVE_INFINITY : room.width / width, room.height / height);
}
