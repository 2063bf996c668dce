// Two runs side by side, the largest difference first.

import type { Context, Panel } from "./bus";
import type { CompareData } from "./data";
import { h } from "./dom";
import { seconds } from "./format";
import { textPage } from "./panel";
import { TableView } from "./table";
import { waterfall } from "./waterfall";

export function compareView(data: CompareData, context: Context): Panel {
  const [before, after] = data.sides;
  const longest = Math.max(before.step, after.step) || 1;
  const bar = (side: { name: string; step: number }, second: boolean): HTMLElement =>
    h(
      "div",
      { class: "bar-row" },
      h("span", { class: "bar-name" }, side.name),
      h(
        "span",
        { class: "bar-track" },
        h("span", {
          class: `bar-part ${second ? "hatched" : ""}`,
          style: `width:${(100 * side.step) / longest}%;--part:var(--accent)`,
        }),
      ),
      h("span", { class: "bar-value" }, `${seconds(side.step)} a step`),
    );
  const table = new TableView(
    {
      type: "table",
      title: "Operators",
      notes: [],
      columns: [
        { label: "operator", unit: "text" },
        { label: before.name, unit: "seconds" },
        { label: after.name, unit: "seconds" },
        { label: "difference", unit: "seconds" },
        { label: "ratio", unit: "ratio" },
      ],
      rows: data.rows.map(([name, a, b]) => [name, a, b, b - a, a ? b / a : null]),
      bars: [3],
      nodes: data.rows.map((row) => row[3]),
      file: "compare.csv",
    },
    context,
  );
  const only = (side: { name: string }, names: string[]): HTMLElement | null =>
    names.length
      ? h(
          "details",
          { open: names.length < 12 },
          h("summary", {}, `Only in ${side.name}: ${names.length}`),
          h(
            "ul",
            {},
            names.map((name) => h("li", {}, name)),
          ),
        )
      : null;
  return {
    element: textPage(
      data,
      waterfall(data, context) ?? h("div", { class: "bars" }, bar(before, false), bar(after, true)),
      h("h3", {}, "Operators"),
      table.element,
      only(before, data.unmatched[0]),
      only(after, data.unmatched[1]),
    ),
  };
}
