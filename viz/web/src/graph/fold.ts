// The visible part of a graph: folded groups and equal devices stand for their nodes.

import { bytes, count, plural, shape, tally } from "../format";
import type { Box, Diagram, Link, Span } from "./diagram";
import type { GraphModel } from "./model";

export interface FoldState {
  folded: Set<number>; // groups
  replicas: boolean; // one lane for equal devices
}

export interface Visible extends Diagram {
  /** Box that shows a node, by position of the node. */
  boxOf: Int32Array;
  /** Nodes of every box, those of other devices included. */
  members: number[][];
  /** The group that a box stands for, -1 for a single node. */
  groups: number[];
  /** Links as positions of edges of the model. */
  linkEdges: number[][];
  summary: string;
}

/** The outermost folded group around a node, -1 for none. */
function shownAs(model: GraphModel, folded: Set<number>, position: number): number {
  let outermost = -1;
  for (let group = model.groupOf[position] as number; group >= 0; group = model.parent(group))
    if (folded.has(group)) outermost = group;
  return outermost;
}

/** The number of boxes that would be visible; faster than computing which ones. */
export function countBoxes(model: GraphModel, state: FoldState): number {
  const seen = new Set<number>();
  let single = 0;
  for (let position = 0; position < model.nodes.length; position++) {
    if (state.replicas && model.twin(position) !== position) continue;
    const group = shownAs(model, state.folded, position);
    if (group < 0) single++;
    else seen.add(group);
  }
  return single + seen.size;
}

export function visible(model: GraphModel, state: FoldState): Visible {
  const boxOf = new Int32Array(model.nodes.length);
  const members: number[][] = [];
  const groups: number[] = [];
  const numbers = new Map<string, number>();
  model.nodes.forEach((_, position) => {
    const shown = state.replicas ? model.twin(position) : position;
    const group = shownAs(model, state.folded, shown);
    const key = group >= 0 ? `g${group}` : `n${shown}`;
    let number = numbers.get(key);
    if (number === undefined) {
      number = members.length;
      numbers.set(key, number);
      members.push([]);
      groups.push(group);
    }
    boxOf[position] = number;
    members[number]?.push(position);
  });
  members.forEach((nodes, number) => {
    const own = state.replicas ? nodes.filter((node) => model.twin(node) === node) : nodes;
    if (own.length === 1) groups[number] = -1; // a group of one hides nothing
  });
  const boxes = members.map((nodes, number) => box(model, state, nodes, groups[number] ?? -1));
  const [links, linkEdges] = join(model, boxOf);
  const lanes = laneNames(model, state);
  const spans = openGroups(model, state, boxOf);
  const summary = summarise(model, state, groups, lanes.size);
  return { boxes, links, lanes, spans, boxOf, members, groups, linkEdges, summary };
}

function box(model: GraphModel, state: FoldState, nodes: number[], group: number): Box {
  const own = state.replicas ? nodes.filter((node) => model.twin(node) === node) : nodes;
  const first = model.node(own[0] as number);
  const copies = own.length ? nodes.length / own.length : 1;
  const times = copies > 1 ? ` ×${digitsOf(copies)}` : "";
  if (group < 0) {
    const inner = [...model.parts(own[0] as number), ...model.body(own[0] as number)];
    return {
      label: label(model, own[0] as number) + times,
      detail: model.detail(own[0] as number),
      role: first.role,
      lane: first.device,
      count: nodes.length,
      stacked: copies > 1 || inner.length > 1,
      folded: false,
    };
  }
  const data = model.data.groups[group];
  const names = own.map((position) => model.node(position).name);
  const roles = new Map<string, number>();
  for (const position of own) {
    const node = model.node(position);
    roles.set(node.role, (roles.get(node.role) ?? 0) + 1);
  }
  const role = [...roles].sort((a, b) => b[1] - a[1])[0]?.[0] ?? first.role;
  const collective = first.device === null && new Set(names).size === 1;
  return {
    label: collective ? `${first.name} ×${nodes.length}` : `${data?.label ?? ""}${times}`,
    detail: collective ? (data?.label ?? "") : tally(names),
    role,
    lane: first.device,
    count: nodes.length,
    stacked: true,
    folded: true,
  };
}

function digitsOf(value: number): string {
  return Number.isInteger(value) ? String(value) : value.toFixed(1);
}

function label(model: GraphModel, position: number): string {
  const node = model.node(position);
  if (node.role !== "collective" || node.kind !== "reduce") return node.name;
  const devices = new Set(
    node.outputs
      .map((id) => model.variable(id))
      .filter((v) => v.kind === "var")
      .map((v) => v.device),
  );
  return devices.size === 1 ? `${node.name} to device ${[...devices][0]}` : node.name;
}

function join(model: GraphModel, boxOf: Int32Array): [Link[], number[][]] {
  const links: Link[] = [];
  const edges: number[][] = [];
  const numbers = new Map<number, number>();
  const wide = model.nodes.length + 1;
  model.edges.forEach((edge, number) => {
    const source = boxOf[edge.source] as number;
    const target = boxOf[edge.target] as number;
    if (source === target) return;
    const key = source * wide + target;
    let link = numbers.get(key);
    if (link === undefined) {
      link = links.length;
      numbers.set(key, link);
      links.push({ source, target, order: true });
      edges.push([]);
    }
    edges[link]?.push(number);
    if (edge.vars.length) (links[link] as Link).order = false;
  });
  return [links, edges];
}

function laneNames(model: GraphModel, state: FoldState): Map<number, string> {
  const used = new Set<number>();
  const hidden = new Map<number, number>();
  model.nodes.forEach((node, position) => {
    if (node.device === null) return;
    const twin = model.node(model.twin(position)).device;
    if (state.replicas && twin !== null && twin !== node.device) hidden.set(node.device, twin);
    else used.add(node.device);
  });
  const names = new Map<number, string>();
  const inner = model.data.graph.devices;
  for (const device of [...used].sort((a, b) => a - b)) {
    const alike = [...hidden].filter(([, twin]) => twin === device).map(([other]) => other);
    const place = inner[device]?.parallel_do ? " · ParallelDo" : "";
    const rest = alike.filter((other) => !used.has(other));
    names.set(
      device,
      rest.length
        ? `devices ${ranges([device, ...rest])} · ×${rest.length + 1}`
        : `device ${device}${place}`,
    );
  }
  return names;
}

function ranges(numbers: number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  const first = sorted[0] as number;
  const last = sorted[sorted.length - 1] as number;
  return last - first === sorted.length - 1 ? `${first}–${last}` : sorted.join(", ");
}

/** Open groups, drawn as brackets beside their boxes. */
function openGroups(model: GraphModel, state: FoldState, boxOf: Int32Array): Span[] {
  const boxesOf = new Map<number, Set<number>>();
  model.nodes.forEach((_, position) => {
    if (state.replicas && model.twin(position) !== position) return;
    if (shownAs(model, state.folded, position) >= 0) {
      const outer = shownAs(model, state.folded, position);
      const parents = [...model.groupsOf(position)];
      for (const group of parents.slice(parents.indexOf(outer) + 1)) add(group, position);
      return;
    }
    for (const group of model.groupsOf(position)) add(group, position);
  });
  function add(group: number, position: number): void {
    const set = boxesOf.get(group) ?? new Set();
    set.add(boxOf[position] as number);
    boxesOf.set(group, set);
  }
  return [...boxesOf]
    .sort((a, b) => a[0] - b[0])
    .map(([group, set]) => ({
      group,
      label: model.data.groups[group]?.label ?? "",
      boxes: [...set],
    }));
}

function summarise(model: GraphModel, state: FoldState, groups: number[], lanes: number): string {
  const inner = model.nodes.filter(({ loop }) => loop !== undefined).length;
  const all = `${plural(model.nodes.length, "operator")}${inner ? `, ${count(inner)} of them in loops,` : ""}`;
  const what: string[] = [];
  const kinds = new Map<string, number>();
  for (const group of groups) {
    const kind = model.data.groups[group]?.kind;
    if (kind) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  for (const [kind, n] of kinds) what.push(plural(n, kind));
  const devices = new Set(model.nodes.map((node) => node.device ?? 0)).size;
  if (lanes && lanes < devices) what.push(`${devices} equal devices as ${lanes}`);
  else if (state.replicas && model.nodes.some((_, at) => model.twin(at) !== at))
    what.push(`equal operators of ${devices} devices as one`);
  if (!what.length) return `All ${all} shown, nothing folded.`;
  return `${all} in ${count(groups.length)} boxes; folded: ${what.join(", ")}.`;
}

/** What flows along some edges, in words. */
export function flowText(model: GraphModel, edges: number[]): string {
  const vars = edges.flatMap((edge) => model.edge(edge).vars);
  if (!vars.length) return "order only";
  const first = model.variable(vars[0] as number);
  if (vars.length === 1) {
    const size = first.bytes === null ? "" : ` · ${bytes(first.bytes)}`;
    return `${shape(first.shape)} ${first.dtype}${size}`;
  }
  const sizes = vars.map((id) => model.variable(id).bytes);
  const known = sizes.filter((size): size is number => size !== null);
  const total = known.reduce((sum, size) => sum + size, 0);
  const least = known.length < sizes.length ? "≥ " : "";
  return `${vars.length} tensors · ${least}${bytes(total)}`;
}
