// Findings: figures that stand out, bars of parts, sentences.

import type { Context, Panel } from "./bus";
import type { TextData, TextSection } from "./data";
import { type Child, h } from "./dom";
import { figure } from "./format";
import { textPage } from "./panel";
import { everyStep } from "./steps";

const TONES = { plain: "", good: "✓", warn: "!" } as const;

export function textView(data: TextData, context: Context): Panel {
  return {
    element: textPage(
      data,
      data.sections.map((section) =>
        h("section", {}, h("h3", {}, section.heading), content(section, context)),
      ),
    ),
  };
}

function content(section: TextSection, context: Context): Child {
  const { figures, steps, bars, sentences, code } = section;
  return [
    figures?.length
      ? h(
          "div",
          { class: "tiles" },
          figures.map((tile) =>
            h(
              "div",
              { class: "tile" },
              h("b", {}, figure(tile.value, tile.unit)),
              h("span", {}, tile.label),
              tile.hint ? h("small", {}, tile.hint) : null,
            ),
          ),
        )
      : null,
    steps ? everyStep(steps, context) : null,
    bars?.length ? [h("div", { class: "bars" }, bars.map(bar)), legend(bars)] : null,
    sentences?.length
      ? h(
          "ul",
          { class: "findings" },
          sentences.map((sentence) => finding(sentence, context)),
        )
      : null,
    code?.length ? h("pre", { class: "code", tabindex: 0 }, code.join("\n")) : null,
  ];
}

type Bar = NonNullable<TextSection["bars"]>[number];

/** By name of a part, the class of its colour and pattern, which belong to its meaning. */
function looks(bars: Bar[]): Map<string, string> {
  return new Map(bars.flatMap((item) => item.parts.map(([name, , look]) => [name, look])));
}

function bar(item: Bar, _: number, all: Bar[]): HTMLElement {
  const total = item.parts.reduce((sum, [, value]) => sum + value, 0);
  const most =
    Math.max(...all.map((other) => other.parts.reduce((sum, [, value]) => sum + value, 0))) || 1;
  const parts = item.parts.map(([name, value, look]) => {
    const share = (100 * value) / most;
    const text = figure(value, item.unit);
    return h(
      "span",
      {
        class: `bar-part is-${look}`,
        style: `width:${share}%`,
        title: `${name}: ${text}`,
      },
      share > 9 ? h("span", {}, text) : null,
    );
  });
  return h(
    "div",
    { class: "bar-row" },
    h("span", { class: "bar-name" }, item.label),
    h(
      "span",
      {
        class: "bar-track",
        role: "img",
        "aria-label": item.parts
          .map(([name, value]) => `${name} ${figure(value, item.unit)}`)
          .join(", "),
      },
      parts,
    ),
    h("span", { class: "bar-value" }, item.unit === "fraction" ? "" : figure(total, item.unit)),
  );
}

function legend(bars: Bar[]): HTMLElement {
  return h(
    "ul",
    { class: "legend" },
    [...looks(bars)].map(([name, look]) =>
      h("li", {}, h("i", { class: `bar-part is-${look}` }), name),
    ),
  );
}

function finding(
  sentence: NonNullable<TextSection["sentences"]>[number],
  context: Context,
): HTMLElement {
  const nodes = sentence.nodes ?? [];
  const { bus } = context;
  const open = (kind: "graph" | "timeline") => {
    bus.open(kind, nodes, sentence);
    if (kind === "timeline" && sentence.step !== undefined) bus.openStep(sentence.step);
  };
  const known = { graph: nodes.length > 0, timeline: nodes.length > 0 || "step" in sentence };
  const go = (kind: "graph" | "timeline", label: string): Child =>
    known[kind] && bus.has(kind)
      ? h("button", { class: "link", onclick: () => open(kind) }, label)
      : null;
  const sign = TONES[sentence.tone];
  return h(
    "li",
    { class: sentence.tone },
    sign ? h("span", { class: "tone", "aria-hidden": "true" }, sign) : null,
    h("span", {}, sentence.text),
    " ",
    go("graph", "graph ↗"),
    " ",
    go("timeline", "timeline ↗"),
  );
}
