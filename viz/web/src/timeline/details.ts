// What is said about a selected slice.

import { type Child, h } from "../dom";
import { count, figure, moment, nanoseconds } from "../format";
import { SIGNS } from "../theme";
import type { TimeWindow } from "../window";
import type { TimelineModel } from "./model";
import { type Area, BETWEEN, type Sum, sumsOf } from "./sums";

interface Actions {
  roles: Record<string, string>;
  choose: (slice: number) => void;
  graph: ((nodes: number[]) => void) | null;
}

interface SpanActions {
  roles: Record<string, string>;
  graph: ((nodes: number[]) => void) | null;
  zoom: () => void;
  isOpen: boolean;
  open: (on: boolean) => void;
}

const MOST = 30;

/** Which span of time is in view, of which of all steps: they are counted from 0 everywhere. */
export function seenText(model: TimelineModel, window: TimeWindow, seen: number[]): string {
  const [first, last] = [seen[0], seen.at(-1)];
  const which = first === last ? `step ${first}` : `steps ${first} to ${last}`;
  const all = `${model.steps[0]?.number ?? 0} to ${model.steps.at(-1)?.number ?? 0}`;
  const from = moment(Math.max(0, window.from), window.span / 50);
  const steps = first === undefined ? "" : `, ${which} of ${all}`;
  return `${nanoseconds(window.span)} in view from ${from}${steps}`;
}

export function sliceDetails(model: TimelineModel, slice: number, actions: Actions): Child[] {
  const role = model.role(slice);
  const track = model.trackOf(slice);
  const node = model.node(slice);
  const facts: [string, string][] = [
    ["duration", nanoseconds(model.duration(slice))],
    ["starts", model.when(slice)],
    ["role", `${SIGNS[role] ?? ""} ${actions.roles[role] ?? role}`],
    ["on", `${track.group} · ${track.name}`],
    ["step", String(model.step(slice))],
  ];
  if (model.critical.has(slice)) facts.push(["critical path", "yes"]);
  for (const [name, value] of Object.entries(model.data.details?.[String(slice)] ?? {})) {
    const text =
      typeof value === "number"
        ? figure(value, "number")
        : Array.isArray(value)
          ? value.join(", ")
          : String(value);
    facts.push([name, text]);
  }
  const { graph } = actions;
  return [
    h("h2", {}, model.name(slice)),
    h(
      "dl",
      {},
      facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    node !== null && graph
      ? h("p", { class: "buttons" }, h("button", { onclick: () => graph([node]) }, "Show in graph"))
      : null,
    linked(
      "Waited for",
      model,
      model
        .flows(slice)
        .filter(([, to]) => to === slice)
        .map(([from]) => from),
      actions,
    ),
    linked(
      "Awaited by",
      model,
      model
        .flows(slice)
        .filter(([from]) => from === slice)
        .map(([, to]) => to),
      actions,
    ),
    linked(
      "Same operator",
      model,
      node === null ? [] : (model.byNode.get(node) ?? []).filter((other) => other !== slice),
      actions,
    ),
  ];
}

function linked(heading: string, model: TimelineModel, slices: number[], actions: Actions): Child {
  if (!slices.length) return null;
  const items = slices
    .slice(0, MOST)
    .map((slice) =>
      h(
        "li",
        {},
        h(
          "button",
          { class: "link", onclick: () => actions.choose(slice) },
          `${SIGNS[model.role(slice)] ?? ""} ${model.name(slice)}`,
        ),
        h(
          "span",
          { class: "more" },
          `${nanoseconds(model.duration(slice))} at ${model.when(slice)} · step ${model.step(slice)}`,
        ),
      ),
    );
  const more =
    slices.length > MOST ? h("p", { class: "more" }, `and ${slices.length - MOST} more`) : null;
  return [h("h3", {}, `${heading} (${slices.length})`), h("ul", { class: "plain" }, items), more];
}

/** A layer that ran: its operators together. */
export function spanDetails(model: TimelineModel, span: number, actions: SpanActions): Child[] {
  const { spans } = model;
  if (!spans) return [];
  const [from, to] = [model.start(span), model.stop(span)];
  const area = { from: from + 1, to: to - 1, tracks: [model.track(span)] };
  const { names } = sumsOf(model, area);
  const own = names.filter(({ name }) => name !== BETWEEN);
  const busy = own.reduce((sum, { time }) => sum + time, 0);
  const track = model.trackOf(span);
  const facts: [string, string][] = [
    ["lasts", nanoseconds(to - from)],
    ["at work", nanoseconds(busy)],
    ["starts", model.when(span)],
    ["operators", count(spans.count[span - model.total] as number)],
    ["on", `${track.group} · ${track.name}`],
    ["step", String(model.step(span))],
  ];
  const { graph, isOpen, open, zoom } = actions;
  return [
    h("h2", {}, model.name(span)),
    h(
      "dl",
      {},
      facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    h(
      "p",
      { class: "buttons" },
      h("button", { onclick: () => open(!isOpen) }, isOpen ? "Fold" : "Open"),
      h("button", { onclick: zoom }, "Zoom to it"),
      graph ? h("button", { onclick: () => graph(spans.nodes(span)) }, "Show in graph") : null,
    ),
    sumTable("By operator", own, busy, (sum) => sum.name),
  ];
}

/** What happened in an area, and for how long. */
export function areaDetails(
  model: TimelineModel,
  area: Area,
  roles: Record<string, string>,
  zoom: () => void,
): Child[] {
  const sums = sumsOf(model, area);
  const span = area.to - area.from;
  const all = span * area.tracks.length;
  const steps = sums.steps.length;
  const facts: [string, string][] = [
    ["from", moment(area.from, Math.max(1, span / 100))],
    [
      "steps",
      steps > 1 ? `${sums.steps[0]} to ${sums.steps[steps - 1]}` : `${sums.steps[0] ?? "–"}`,
    ],
    ["tracks", String(area.tracks.length)],
    ["slices", count(sums.slices)],
    ["busy", all ? `${nanoseconds(sums.busy)}, ${figure(sums.busy / all, "fraction")}` : "–"],
  ];
  return [
    h("h2", {}, `${nanoseconds(span)} selected`),
    h(
      "dl",
      {},
      facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
    h("p", { class: "buttons" }, h("button", { onclick: zoom }, "Zoom to it")),
    h("p", { class: "more" }, "Times are added over the tracks; those of parts count once."),
    sumTable("By role", sums.roles, sums.busy, (sum) => roles[sum.role] ?? sum.role),
    sumTable("By operator", sums.names, sums.busy, (sum) => sum.name),
  ];
}

function sumTable(heading: string, sums: Sum[], busy: number, name: (sum: Sum) => string): Child {
  if (!sums.length) return null;
  const rows = sums
    .slice(0, MOST)
    .map((sum) =>
      h(
        "tr",
        {},
        h("td", {}, `${SIGNS[sum.role] ?? ""} ${name(sum)}`),
        h("td", { class: "number" }, `${count(sum.count)}×`),
        h("td", { class: "number" }, nanoseconds(sum.time)),
        h("td", { class: "number" }, busy ? figure(sum.time / busy, "fraction") : ""),
      ),
    );
  const more =
    sums.length > MOST ? h("p", { class: "more" }, `and ${sums.length - MOST} more`) : null;
  return [h("h3", {}, heading), h("table", { class: "sums" }, h("tbody", {}, rows)), more];
}
