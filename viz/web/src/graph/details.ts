// The panel that says everything about what is selected in the graph.

import { declaration, kernels, userLine } from "../code";
import type { NodeFile } from "../data";
import { type Child, children, h } from "../dom";
import { bytes, figure, plural, seconds, shape } from "../format";
import { SIGNS } from "../theme";
import type { Visible } from "./fold";
import type { GraphModel } from "./model";
import { whatIf } from "./replay";

export interface Actions {
  roles: Record<string, string>;
  choose: (node: number) => void; // position
  expand: (group: number) => void;
  fold: (group: number) => void;
  round: () => void; // another round of a loop is looked at
  timeline: ((nodes: number[]) => void) | null;
}

const MOST = 60; // rows of a list before it is cut

/** Details of a box: one operator, or what is folded into the box. */
export function details(model: GraphModel, shown: Visible, box: number, actions: Actions): Child[] {
  const group = shown.groups[box] ?? -1;
  const members = shown.members[box] ?? [];
  const label = shown.boxes[box]?.label ?? "";
  return group < 0
    ? operator(model, members, actions)
    : groupDetails(model, label, group, members, true, actions);
}

function operator(model: GraphModel, members: number[], actions: Actions): Child[] {
  const position = members[0] as number;
  const node = model.node(position);
  const parts = model.parts(position);
  const facts: [string, Child][] = [
    ["role", `${SIGNS[node.role] ?? ""} ${actions.roles[node.role] ?? node.role}`],
    ["device", device(model, members)],
    ["op", `${node.id} (${node.kind})`],
  ];
  if (node.layer) facts.push(["layer", node.layer]);
  if (node.scope && node.scope !== "/") facts.push(["scope", node.scope]);
  if (node.line) facts.push(["your line", userLine(model.data.graph, node.line)]);
  if (node.expression) facts.push(["computes", h("code", {}, node.expression)]);
  if (node.loop !== undefined) {
    const loop = model.position(node.loop);
    const go = { class: "link", onclick: () => actions.choose(loop) };
    facts.push(["run by", h("button", go, model.node(loop).name)]);
  }
  if (node.task) facts.push(["task", h("code", {}, node.task)]);
  facts.push(...measured(model, members));
  return [
    h("h2", {}, node.name, members.length > 1 ? ` ×${members.length}` : ""),
    list(facts),
    whatIf(model, members),
    buttons(model, members, position, actions),
    parts.length
      ? [
          h("h3", {}, `Fused from ${parts.length}`),
          h(
            "ul",
            {},
            parts.map((part) => h("li", {}, part)),
          ),
        ]
      : null,
    code(model, position),
    rounds(model, position, actions),
    body(model, position),
    variables(model, "Inputs", node.inputs),
    variables(model, "Outputs", node.outputs),
    neighbours(model, position, actions),
  ];
}

/** What did the work of an operator, and where it is declared. */
function code(model: GraphModel, position: number): Child {
  const { name, kernels: numbers } = model.node(position);
  const texts = model.data.graph;
  const ran = kernels(texts, numbers);
  const declared = declaration(texts, name);
  return ran || declared ? [h("h3", {}, "Code"), ran, declared] : null;
}

/** What runs inside, such as in every round of a loop. */
function body(model: GraphModel, position: number): Child {
  const inner = model.body(position);
  if (!inner.length) return null;
  const rows = inner.map(({ name, output, depth }) =>
    h("li", { style: `margin-left: ${depth}em` }, name, h("span", { class: "more" }, output)),
  );
  return [
    h("h3", {}, `Runs ${plural(inner.length, "operator")}`),
    h("ul", { class: "plain" }, rows),
  ];
}

/** Sliders through the rounds of the loops around an operator, and its own: the boxes of a body say
 * what they took in one. */
function rounds(model: GraphModel, position: number, actions: Actions): Child {
  const sliders = model.loops(position).map((loop) => h("div", {}, ...children(slider(loop))));
  function slider(loop: NodeFile): Child {
    const known = model.rounds(loop);
    if (known.length < 2) return null;
    const said = h("output", {});
    const at = Math.min(model.round.get(loop.id) ?? 0, known.length - 1);
    const input = h("input", {
      type: "range",
      min: 1,
      max: known.length,
      value: at + 1,
      "aria-label": `Round of ${loop.name}`,
      oninput: () => {
        say();
        model.loops(position).forEach((other, number) => {
          if (other.loop !== undefined && other.id !== loop.id && deeper(other, loop))
            sliders[number]?.replaceChildren(...children(slider(other)));
        });
      },
      onchange: () => actions.round(),
    });
    const say = (): void => {
      const round = input.valueAsNumber - 1;
      model.round.set(loop.id, round);
      const all = known[round]?.seconds ?? [];
      const took = all.reduce<number>((sum, value) => sum + (value ?? 0), 0);
      said.replaceChildren(`${round + 1} of ${known.length}: ${seconds(took)}`);
    };
    say();
    const where = loop.line ? ` · ${loop.line}` : "";
    return [
      h("h3", {}, `Rounds of ${loop.name}${where}`),
      h("p", { class: "what-if" }, input, said),
    ];
  }
  const deeper = (inner: NodeFile, outer: NodeFile): boolean =>
    model.loops(model.position(inner.id)).includes(outer);
  return sliders;
}

/** What belongs to a group, folded or open. */
export function groupDetails(
  model: GraphModel,
  label: string,
  group: number,
  members: number[],
  folded: boolean,
  actions: Actions,
): Child[] {
  const data = model.data.groups[group];
  const names = new Map<string, number>();
  for (const member of members) {
    const { name } = model.node(member);
    names.set(name, (names.get(name) ?? 0) + 1);
  }
  const sorted = [...names].sort((a, b) => b[1] - a[1]);
  return [
    h("h2", {}, label),
    list([
      [
        folded ? "folded" : "open",
        `${plural(members.length, "operator")} of one ${data?.kind ?? "group"}`,
      ],
      ["device", device(model, members)],
      ...measured(model, members),
    ]),
    whatIf(model, members),
    data?.kind === "loop" ? rounds(model, members[0] as number, actions) : null,
    h(
      "p",
      { class: "buttons" },
      folded
        ? h("button", { onclick: () => actions.expand(group) }, "Expand")
        : h("button", { onclick: () => actions.fold(group) }, `Fold ${label}`),
      timelineButton(model, members, actions),
    ),
    h("h3", {}, "Holds"),
    h(
      "ul",
      { class: "plain" },
      sorted.map(([name, n]) => h("li", {}, n > 1 ? `${name} ×${n}` : name)),
    ),
    h("h3", {}, "Operators"),
    nodeList(model, members, actions),
  ];
}

function list(facts: [string, Child][]): HTMLElement {
  return h(
    "dl",
    {},
    facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
  );
}

function device(model: GraphModel, members: number[]): string {
  const found = [...new Set(members.map((member) => model.node(member).device))];
  if (found.includes(null)) return "all";
  return found.sort().join(", ");
}

function measured(model: GraphModel, members: number[]): [string, Child][] {
  const sum = (values: (number | null)[] | undefined): number | null => {
    const known = members
      .map((member) => values?.[member] ?? null)
      .filter((v): v is number => v !== null);
    return known.length ? known.reduce((a, b) => a + b, 0) : null;
  };
  const { time, memory, slack, effect } = model.overlay;
  const facts: [string, Child][] = [];
  const total = sum(time);
  const spread = members.length === 1 ? sum(model.overlay.spread) : null;
  if (total !== null)
    facts.push(["time per step", `${seconds(total)}${spread ? ` ± ${seconds(spread)}` : ""}`]);
  const size = sum(memory);
  if (size !== null) facts.push(["memory at peak", bytes(size)]);
  const slacks = members
    .map((member) => slack?.[member] ?? null)
    .filter((v): v is number => v !== null);
  if (slacks.length) facts.push(["slack", seconds(Math.min(...slacks))]);
  const decides = sum(effect);
  if (decides !== null)
    facts.push(["effect", decides ? `decides ${seconds(decides)} of the step` : "none"]);
  if (members.some((member) => model.critical.has(member))) facts.push(["critical path", "yes"]);
  const failures = members.map((member) => model.failed.get(member));
  for (const text of failures) if (text) facts.push(["failed", text]);
  return facts;
}

function buttons(
  model: GraphModel,
  members: number[],
  position: number,
  actions: Actions,
): HTMLElement {
  const groups = [...model.groupsOf(position)];
  const label = (group: number): string => model.data.groups[group]?.label ?? "";
  const size = (group: number): string => plural(model.membersOf(group, false).length, "operator");
  const isClear = (group: number): boolean =>
    groups.every((other) => other === group || label(other) !== label(group));
  return h(
    "p",
    { class: "buttons" },
    timelineButton(model, members, actions),
    groups.map((group) =>
      h(
        "button",
        { onclick: () => actions.fold(group) },
        `Fold ${label(group)}${isClear(group) ? "" : ` of ${size(group)}`}`,
      ),
    ),
  );
}

function timelineButton(model: GraphModel, members: number[], actions: Actions): Child {
  const { timeline } = actions;
  if (!timeline) return null;
  const ids = [...new Set(members.map((member) => model.told(member)))];
  return h("button", { onclick: () => timeline(ids) }, "Show in timeline");
}

function variables(model: GraphModel, heading: string, ids: number[]): Child {
  const data = ids.filter((id) => model.variable(id).kind === "var");
  if (!data.length) return null;
  const rows = data.slice(0, MOST).map((id) => {
    const variable = model.variable(id);
    return h(
      "li",
      {},
      h("code", {}, variable.name),
      h(
        "span",
        { class: "more" },
        `${shape(variable.shape)} ${variable.dtype} · ${figure(variable.bytes, "bytes")}` +
          `${variable.persistable ? " · kept" : ""}${variable.device === null ? "" : ` · device ${variable.device}`}`,
      ),
    );
  });
  return [
    h("h3", {}, `${heading} (${data.length})`),
    h("ul", { class: "plain" }, rows),
    rest(data.length),
  ];
}

function neighbours(model: GraphModel, position: number, actions: Actions): Child {
  const before = (model.incoming[position] ?? []).map((edge) => model.edge(edge).source);
  const after = (model.outgoing[position] ?? []).map((edge) => model.edge(edge).target);
  return [
    before.length ? [h("h3", {}, "Needs"), nodeList(model, before, actions)] : null,
    after.length ? [h("h3", {}, "Needed by"), nodeList(model, after, actions)] : null,
  ];
}

function nodeList(model: GraphModel, positions: number[], actions: Actions): Child {
  const items = positions.slice(0, MOST).map((position) => {
    const node = model.node(position);
    const where = node.device === null ? "" : ` · device ${node.device}`;
    return h(
      "li",
      {},
      h(
        "button",
        { class: "link", onclick: () => actions.choose(position) },
        `${SIGNS[node.role] ?? ""} ${node.name}`,
      ),
      h("span", { class: "more" }, `${model.detail(position)}${where}`),
    );
  });
  return [h("ul", { class: "plain" }, items), rest(positions.length)];
}

function rest(total: number): Child {
  return total > MOST ? h("p", { class: "more" }, `and ${total - MOST} more`) : null;
}
