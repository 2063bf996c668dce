// A graph file with what the page asks of it all the time.

import type { GraphData, InnerOp, NodeFile, OverlayData, VarFile } from "../data";
import { seconds, shape, tally } from "../format";
import { withBodies } from "./bodies";

export interface Edge {
  source: number; // positions of nodes
  target: number;
  vars: number[]; // what flows; empty when only the order matters
}

export class GraphModel {
  readonly nodes: NodeFile[];
  readonly vars: VarFile[];
  readonly edges: Edge[] = [];
  readonly incoming: number[][];
  readonly outgoing: number[][];
  readonly overlay: OverlayData;
  readonly critical: Set<number>;
  readonly failed = new Map<number, string>();
  /** Of every node of the critical path, the edge from the last node before it. */
  readonly criticalEdges = new Set<number>();
  /** Innermost group of every node, -1 for none. */
  readonly groupOf: Int32Array;
  private readonly positions = new Map<number, number>();
  private texts: string[] | null = null;

  readonly data: GraphData;
  /** By id of a loop: which of its rounds the figures of its body are of. */
  readonly round = new Map<number, number>();

  constructor(file: GraphData) {
    const data = (this.data = withBodies(file));
    this.nodes = data.graph.nodes;
    this.vars = data.graph.vars;
    this.overlay = data.overlay ?? {};
    this.nodes.forEach((node, position) => this.positions.set(node.id, position));
    this.incoming = this.nodes.map(() => []);
    this.outgoing = this.nodes.map(() => []);
    this.groupOf = new Int32Array(this.nodes.length).fill(-1);
    data.groups.forEach((group, number) => {
      for (const id of group.nodes) this.groupOf[this.position(id)] = number;
    });
    this.critical = new Set(this.overlay.critical?.map((id) => this.position(id)));
    for (const [id, text] of Object.entries(this.overlay.failed ?? {}))
      this.failed.set(this.position(Number(id)), text);
    this.connect();
    this.followCritical();
  }

  position(id: number): number {
    return this.positions.get(id) ?? -1;
  }

  node(position: number): NodeFile {
    return this.nodes[position] as NodeFile;
  }

  variable(id: number): VarFile {
    return this.vars[id] as VarFile;
  }

  edge(number: number): Edge {
    return this.edges[number] as Edge;
  }

  /** The id that other views know: of an operator of a loop, the outermost loop's. */
  told(position: number): number {
    let node = this.node(position);
    while (node.loop !== undefined) node = this.node(this.position(node.loop));
    return node.id;
  }

  /** The loops around an operator, outermost first, and itself if it runs blocks. */
  loops(position: number): NodeFile[] {
    const node = this.node(position);
    const around = node.loop === undefined ? [] : this.loops(this.position(node.loop));
    return node.rounds === undefined ? around : [...around, node];
  }

  /** Measured rounds of a loop, in the round that is looked at of the loop around it: seconds by
   * operator of its body, with the number of each among those of all its runs. */
  rounds(loop: NodeFile): { number: number; seconds: (number | null)[] }[] {
    const data = this.overlay.rounds?.[loop.rounds ?? ""];
    if (!data) return [];
    const outer = loop.loop === undefined ? 0 : this.current(this.node(this.position(loop.loop)));
    return data.seconds
      .map((seconds, number) => ({ number, seconds }))
      .filter(({ number }) => data.of[number] === outer);
  }

  /** The number of the round of a loop that is looked at, among those of all its runs. */
  private current(loop: NodeFile): number {
    const found = this.rounds(loop);
    return found[Math.min(this.round.get(loop.id) ?? 0, found.length - 1)]?.number ?? -1;
  }

  /** What an operator of a loop took in the round that is looked at; "" if that is unknown. */
  roundText(position: number): string {
    const { loop, at } = this.node(position);
    if (loop === undefined || at === undefined) return "";
    const around = this.node(this.position(loop));
    const known = this.rounds(around);
    if (!known.length) return this.overlay.rounds?.[around.rounds ?? ""] ? "not run" : "";
    const round = Math.min(this.round.get(loop) ?? 0, known.length - 1);
    const took = known[round]?.seconds[at] ?? null;
    return `round ${round + 1}: ${took === null ? "not run" : seconds(took)}`;
  }

  /** The node on the first device that does the same; the node itself where there is none. */
  twin(position: number): number {
    const id = this.data.twins[position];
    return id === null || id === undefined ? position : this.position(id);
  }

  /** The group around a group, -1 for none. */
  parent(group: number): number {
    return this.data.groups[group]?.parent ?? -1;
  }

  /** Groups around a node, innermost first. */
  *groupsOf(position: number): Generator<number> {
    let group = this.groupOf[position] ?? -1;
    while (group >= 0) {
      yield group;
      group = this.data.groups[group]?.parent ?? -1;
    }
  }

  get roles(): Set<string> {
    return new Set(this.nodes.map((node) => node.role));
  }

  /** The first operator in a group, -1 for none. */
  firstIn(group: number): number {
    return this.nodes.findIndex((_, position) => this.isIn(position, group));
  }

  /** All operators in a group; with `replicas`, those of equal devices too. */
  membersOf(group: number, replicas: boolean): number[] {
    const shown = (position: number): number => (replicas ? this.twin(position) : position);
    return [...this.nodes.keys()].filter((position) => this.isIn(shown(position), group));
  }

  private isIn(position: number, group: number): boolean {
    for (const around of this.groupsOf(position)) if (around === group) return true;
    return false;
  }

  /** Operators that a node was fused from. */
  parts(position: number): string[] {
    return this.data.parts?.[String(this.node(position).id)] ?? [];
  }

  /** Operators of the blocks that a node runs. */
  body(position: number): InnerOp[] {
    return this.node(position).body ?? [];
  }

  /** What a search looks through: everything that names the node, in lower case. */
  text(position: number): string {
    this.texts ??= this.nodes.map((node, number) => this.searchable(node, number));
    return this.texts[position] ?? "";
  }

  /** What the second line of a box shows: what it runs, else its first output that is data. */
  detail(position: number): string {
    const body = this.body(position);
    const round = this.roundText(position);
    if (round) return round;
    if (body.length) return tally(body.map((inner) => inner.name));
    const outputs = this.node(position)
      .outputs.map((id) => this.variable(id))
      .filter((variable) => variable.kind === "var");
    const first = outputs[0];
    if (!first) return "";
    const names = new Set(outputs.map((variable) => variable.name));
    if (names.size > 1) return `${first.name} +${names.size - 1}`;
    return first.shape.length ? `${first.name} ${shape(first.shape)}` : first.name;
  }

  private searchable(node: NodeFile, position: number): string {
    const parts = [node.name, node.kind, node.role, node.scope, node.layer, node.line ?? ""];
    parts.push(node.device === null ? "all devices" : `device ${node.device}`, `op ${node.id}`);
    parts.push(...this.parts(position));
    for (const inner of this.body(position)) if (!inner.reads) parts.push(inner.name, inner.output); // else they are found themselves
    for (const id of [...node.inputs, ...node.outputs]) {
      const variable = this.variable(id);
      if (variable.kind === "var")
        parts.push(`${variable.name} ${shape(variable.shape)} ${variable.dtype}`);
    }
    return parts.join("\n").toLowerCase();
  }

  private followCritical(): void {
    const places = new Map([...this.critical].map((position, place) => [position, place]));
    for (const position of this.critical) {
      const found = (this.incoming[position] ?? []).filter((edge) =>
        places.has(this.edge(edge).source),
      );
      const place = (edge: number): number => places.get(this.edge(edge).source) ?? -1;
      const last = found.sort((a, b) => place(b) - place(a))[0];
      if (last !== undefined) this.criticalEdges.add(last);
    }
  }

  private connect(): void {
    const producers = new Int32Array(this.vars.length).fill(-1);
    this.nodes.forEach((node, position) => {
      for (const id of node.outputs) producers[id] = position;
    });
    this.nodes.forEach((node, target) => {
      const found = new Map<number, number[]>();
      for (const id of node.inputs) {
        const source = producers[id] ?? -1;
        if (source < 0 || source === target) continue;
        const flowing = found.get(source) ?? [];
        if (this.variable(id).kind === "var") flowing.push(id);
        found.set(source, flowing);
      }
      for (const [source, vars] of found) {
        this.outgoing[source]?.push(this.edges.length);
        this.incoming[target]?.push(this.edges.length);
        this.edges.push({ source, target, vars });
      }
    });
  }
}
