// From one duration to another, a row for every cause; each begins where the one before ends.

import type { Context } from "./bus";
import type { CompareData } from "./data";
import { h } from "./dom";
import { seconds } from "./format";

const TAIL = 16; // characters of a name that are always seen

export function waterfall(data: CompareData, context: Context): HTMLElement | null {
  const { causes, sides } = data;
  if (!causes.length) return null;
  const [before, after] = sides;
  const ends = [before.step, after.step];
  let at = before.step;
  for (const [, difference] of causes) ends.push((at += difference));
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  // The axis shows where they differ: from zero, small causes of long steps could not be seen.
  // It begins below zero where causes of shorter steps come first.
  const low = Math.min(least, Math.max(0, least - 0.25 * (most - least)));
  const whole = Math.max(0, low);
  const span = (most - low) * 1.02 || 1;
  const place = (time: number): number => (100 * (time - low)) / span;

  const row = (
    name: string,
    from: number,
    to: number,
    text: string,
    look: string,
    nodes: number[] = [],
  ): HTMLElement => {
    const left = place(Math.min(from, to));
    const bar = h("span", {
      class: `fall ${look}`,
      style: `left:${left}%;width:max(2px,${place(Math.max(from, to)) - left}%)`,
      title: `${name}: ${text}`,
    });
    return h(
      "div",
      { class: "fall-row" },
      h("span", { class: "fall-name", title: name }, label(name, nodes, context)),
      h("span", { class: "fall-track", role: "img", "aria-label": `${name}: ${text}` }, bar),
      h("span", { class: "fall-value" }, text),
    );
  };

  at = before.step;
  const rows = causes.map(([name, difference, text, certain, nodes]) => {
    const from = at;
    at += difference;
    const look = certain ? (difference > 0 ? "longer" : "shorter") : "noise";
    return row(name, from, at, text, look, nodes);
  });
  return h(
    "section",
    { class: "waterfall", "aria-label": "Why" },
    h("h3", {}, "Why"),
    row(before.name, whole, before.step, seconds(before.step), "whole"),
    rows,
    row(after.name, whole, after.step, seconds(after.step), "whole"),
    h("p", { class: "fall-axis" }, h("span", {}, seconds(low)), h("span", {}, seconds(low + span))),
    h(
      "ul",
      { class: "legend" },
      [
        ["longer", "longer"],
        ["shorter", "shorter"],
        ["noise", "within noise"],
      ].map(([look, text]) => h("li", {}, h("i", { class: `fall ${look}` }), text)),
    ),
  );
}

/** Two parts, of which the first gives way: names of variables differ at the end. */
function label(name: string, nodes: number[], context: Context): HTMLElement {
  const parts = [
    h("span", { class: "head" }, name.slice(0, -TAIL)),
    h("span", {}, name.slice(-TAIL)),
  ];
  if (!nodes.length || !context.bus.has("graph")) return h("span", { class: "cut" }, parts);
  const show = (): void => context.bus.open("graph", nodes, data);
  const data = {};
  return h("button", { class: "link cut", onclick: show }, parts);
}
