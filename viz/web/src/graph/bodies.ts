// Loop bodies as part of the graph: a loop and the operators that it runs are a group that opens.

import type { GraphData, GroupData, InnerOp, NodeFile, VarFile } from "../data";

/** The data with a node for every operator of a block, behind those of the graph itself. */
export function withBodies(data: GraphData): GraphData {
  const owners = data.graph.nodes.filter(({ body }) => body?.some(({ reads }) => reads));
  if (!owners.length) return data;
  const made = new Bodies(data);
  for (const owner of owners) made.add(owner);
  return made.data;
}

class Bodies {
  readonly data: GraphData;
  private readonly nodes: NodeFile[];
  private readonly vars: VarFile[];
  private readonly groups: GroupData[];
  private readonly twins: (number | null)[];
  private readonly groupOf = new Map<number, number>();
  private readonly inner = new Map<number, number[]>(); // ids by id of the loop
  private readonly position = new Map<number, number>();
  private next: number;

  constructor(data: GraphData) {
    this.nodes = [...data.graph.nodes];
    this.vars = [...data.graph.vars];
    this.groups = data.groups.map((group) => ({ ...group, nodes: [...group.nodes] }));
    this.twins = [...data.twins];
    this.next = this.nodes.reduce((most, { id }) => Math.max(most, id), -1) + 1;
    this.nodes.forEach(({ id }, at) => this.position.set(id, at));
    this.groups.forEach(({ nodes }, group) => {
      for (const id of nodes) this.groupOf.set(id, group);
    });
    const graph = { ...data.graph, nodes: this.nodes, vars: this.vars };
    this.data = { ...data, graph, groups: this.groups, twins: this.twins };
  }

  add(owner: NodeFile): void {
    const body = owner.body as InnerOp[];
    const head = { ...owner, outputs: [...owner.outputs], rounds: String(owner.id) };
    this.nodes[this.position.get(owner.id) as number] = head;
    const ids = body.map(() => this.next++);
    this.inner.set(owner.id, ids);
    const names = new Map(owner.inputs.map((id) => [(this.vars[id] as VarFile).name, id]));
    const written = new Map<string, number>();
    const entered = new Map<string, number>();
    const twin = this.twins[this.position.get(owner.id) as number];
    const others = twin === null || twin === undefined ? undefined : this.inner.get(twin);
    const around = heads(body);
    const counts = new Map<number, number>(); // operators so far, by the one that runs them
    body.forEach((op, place) => {
      const inputs = (op.reads ?? []).map((name) => {
        const found = written.get(name) ?? entered.get(name);
        if (found !== undefined) return found;
        const given = this.variable(name, owner, names.get(name)); // through the loop's own box
        head.outputs.push(given);
        entered.set(name, given);
        return given;
      });
      const outputs = (op.writes ?? []).map((name, number) => {
        const found = this.variable(name, owner, names.get(name), op.shapes?.[number]);
        written.set(name, found);
        return found;
      });
      const { device, role, scope, layer, task } = owner;
      const line = op.line ?? owner.line;
      const own = {
        id: ids[place] as number,
        name: op.name,
        kind: "compute",
        line,
        inputs,
        outputs,
      };
      const outer = around[place] as number;
      const at = counts.get(outer) ?? 0;
      counts.set(outer, at + 1);
      const loop = outer < 0 ? owner.id : (ids[outer] as number);
      const kernels = op.kernels ? { kernels: op.kernels } : {};
      const rounds = around.includes(place) ? { rounds: `${owner.id}.${place}` } : {};
      this.nodes.push({
        ...own,
        ...kernels,
        ...rounds,
        device,
        role,
        scope,
        layer,
        task,
        loop,
        at,
      });
      this.twins.push(others?.[place] ?? null);
    });
    this.enclose(owner, ids, around);
  }

  private variable(
    name: string,
    { device }: NodeFile,
    like?: number,
    shape?: number[] | null,
  ): number {
    const known = like === undefined ? undefined : this.vars[like];
    const blank = { shape: shape ?? [], dtype: "", bytes: null, persistable: false };
    const facts = known ?? blank;
    return this.vars.push({ ...facts, name, version: 0, device, kind: "var" }) - 1;
  }

  /** The loop with all that it runs, in place of the loop; so are loops inside of it. */
  private enclose(owner: NodeFile, ids: number[], heads: number[]): void {
    const around = this.groupOf.get(owner.id);
    if (around !== undefined) {
      const group = this.groups[around] as GroupData;
      group.nodes = group.nodes.filter((id) => id !== owner.id);
    }
    const places = new Map<number, number>(); // groups by the operator that runs their blocks
    const add = (head: number, id: number, label: string, parent: number | null): void => {
      places.set(head, this.groups.length);
      this.groups.push({ label, kind: "loop", parent, nodes: [id], folded: true });
    };
    add(-1, owner.id, owner.name, around ?? null);
    ids.forEach((id, place) => {
      const outer = places.get(heads[place] as number) as number;
      if (heads.includes(place)) add(place, id, owner.body?.[place]?.name ?? "", outer);
      else this.groups[outer]?.nodes.push(id);
    });
  }
}

/** For every operator of a body the one that runs it: its position, -1 for the loop itself. */
function heads(body: InnerOp[]): number[] {
  const around = [-1];
  return body.map(({ depth }, place) => {
    around.length = depth + 1;
    const found = around[depth] ?? -1;
    around.push(place);
    return found;
  });
}
