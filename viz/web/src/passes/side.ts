// What a pass changed, in words, with the code of what it changed before and after it.

import { declaration, kernels, userLine } from "../code";
import type { PassesData } from "../data";
import { type Child, h } from "../dom";
import { plural } from "../format";
import { type Change, CHANGES } from "./changes";
import type { Stage } from "./diagram";

export const MARKS: Record<Change, string> = { added: "+", removed: "−", changed: "~" };
const MOST = 200;

/** What the texts speak of. */
export interface Subject {
  data: PassesData;
  stage: Stage;
  position: (id: number) => number;
  choose: (position: number) => void;
}

export function counts(stage: Stage): string {
  const parts = CHANGES.filter((kind) => stage[kind].length).map(
    (kind) => `${MARKS[kind]}${stage[kind].length} ${kind}`,
  );
  return parts.length ? parts.join(", ") : "changed nothing";
}

/** Everything that the pass changed. */
export function stageDetails(subject: Subject): Child[] {
  const { stage } = subject;
  const section = (kind: Change): Child => {
    const ids = stage[kind];
    if (!ids.length) return null;
    const rows = ids
      .slice(0, MOST)
      .map((id) => h("li", {}, link(subject, subject.position(id), kind)));
    const more =
      ids.length > MOST ? h("p", { class: "more" }, `and ${ids.length - MOST} more`) : null;
    return [h("h3", {}, `${kind} (${ids.length})`), h("ul", { class: "plain" }, rows), more];
  };
  return [h("h2", {}, stage.name), h("p", {}, stage.note || counts(stage)), CHANGES.map(section)];
}

function link({ data, choose }: Subject, position: number, kind?: Change): Child[] {
  const node = data.nodes[position];
  const where =
    node?.device === null || node?.device === undefined ? "" : ` · device ${node.device}`;
  const mark = kind ? `${MARKS[kind]} ` : "";
  return [
    h("button", { class: "link", onclick: () => choose(position) }, `${mark}${node?.name ?? ""}`),
    h("span", { class: "more" }, `${node?.detail ?? ""}${where}`),
  ];
}

/** What an operator is, who wrote it, and what became of it. */
export function nodeDetails(subject: Subject, position: number, change?: Change): Child[] {
  const { data, stage } = subject;
  const node = data.nodes[position];
  if (!node) return [];
  const what = change
    ? `${MARKS[change]} ${change} by ${stage.name}`
    : `unchanged by ${stage.name}`;
  return [
    h("h2", {}, node.name),
    h("p", {}, what),
    h(
      "ul",
      { class: "plain" },
      node.lines.map((line) => h("li", {}, line)),
    ),
    node.line ? [h("h3", {}, "Your line"), userLine(data, node.line)] : null,
    change ? beforeAndAfter(subject, position) : code(subject, position),
  ];
}

function code({ data }: Subject, position: number): Child {
  const node = data.nodes[position];
  if (!node) return null;
  const own = kernels(data, node.kernels);
  const declared = declaration(data, node.name);
  return own || declared ? [h("h3", {}, "Code"), own, declared] : null;
}

/** Code of what is gone, and of what came in its place. */
function beforeAndAfter(subject: Subject, position: number): Child {
  const { stage } = subject;
  const found = (stage.replaced ?? [])
    .map(([one, gone]) => [subject.position(one), gone.map(subject.position)] as const)
    .find(([one, gone]) => one === position || gone.includes(position));
  if (!found) return code(subject, position);
  return [side(subject, "Before", found[1], false), side(subject, "After", [found[0]], true)];
}

/** Operators of one side; those with the same code together. */
function side(subject: Subject, name: string, nodes: readonly number[], open: boolean): Child {
  const { data } = subject;
  if (!nodes.length) return null;
  const alike = new Map<string, number[]>();
  for (const node of nodes) {
    const key = `${data.nodes[node]?.name} ${data.nodes[node]?.kernels?.join() ?? "-"}`;
    alike.set(key, [...(alike.get(key) ?? []), node]);
  }
  const count = new Set(nodes.flatMap((node) => data.nodes[node]?.kernels ?? [])).size;
  const known = nodes.some((node) => data.nodes[node]?.kernels);
  const heading = known ? `${name}: ${plural(count, "kernel")}` : name;
  return [
    h("h3", {}, `${heading} of ${plural(nodes.length, "operator")}`),
    [...alike.values()].map((members) => {
      const first = data.nodes[members[0] as number];
      const times = members.length > 1 ? h("span", { class: "more" }, `×${members.length}`) : null;
      return h(
        "div",
        { class: "coded" },
        h("p", {}, link(subject, members[0] as number), times),
        kernels(data, first?.kernels, open && alike.size === 1),
        declaration(data, first?.name ?? ""),
      );
    }),
  ];
}
