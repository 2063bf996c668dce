// Which view draws which data.

import type { Context, Panel, State } from "./bus";
import { chartView } from "./chart";
import { compareView } from "./compare";
import type { ViewData } from "./data";
import { h } from "./dom";
import { GraphView } from "./graph/view";
import { memoryView } from "./memory/view";
import { PassesView } from "./passes/view";
import { runPanel } from "./run";
import { TableView } from "./table";
import { textView } from "./text";
import { TimelineView } from "./timeline/view";

/** Several panels below each other; a key is for the one that has the focus, or the first. */
function stack(element: HTMLElement, panels: Panel[]): Panel {
  const link = (): State =>
    Object.fromEntries(
      panels.flatMap((panel, at) =>
        Object.entries(panel.link?.() ?? {}).map(([name, value]) => [`${at}.${name}`, value]),
      ),
    );
  return {
    element,
    reveal: () => panels.forEach((panel) => panel.reveal?.()),
    key: (event) => {
      const focused = panels.find((panel) => panel.element.contains(event.target as Node));
      (focused ?? panels.find((panel) => panel.key))?.key?.(event);
    },
    link,
    restore: (state) =>
      panels.forEach((panel, at) => {
        const own = Object.entries(state).filter(([name]) => name.startsWith(`${at}.`));
        panel.restore?.(
          Object.fromEntries(own.map(([name, value]) => [name.slice(`${at}.`.length), value])),
        );
      }),
  };
}

export function makePanel(data: ViewData, context: Context): Panel {
  switch (data.type) {
    case "graph":
      return new GraphView(data, context);
    case "timeline":
      return new TimelineView(data, context);
    case "passes":
      return new PassesView(data, context);
    case "memory":
      return memoryView(data, context);
    case "table":
      return new TableView(data, context);
    case "compare":
      return compareView(data, context);
    case "chart":
      return chartView(data, context);
    case "text":
      return textView(data, context);
    case "run":
      return runPanel(data, context);
    case "stack": {
      const panels = data.views.map((view) => makePanel(view, context));
      const element = h(
        "div",
        { class: "stack" },
        panels.map((panel) => h("div", { class: "stacked" }, panel.element)),
      );
      return stack(element, panels);
    }
  }
}
