// Which view draws which data.

import type { Context, Panel } from "./bus";
import { chartView } from "./chart";
import { compareView } from "./compare";
import type { ViewData } from "./data";
import { h } from "./dom";
import { GraphView } from "./graph/view";
import { memoryView } from "./memory/view";
import { PassesView } from "./passes";
import { TableView } from "./table";
import { textView } from "./text";
import { TimelineView } from "./timeline/view";

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
    case "stack": {
      const panels = data.views.map((view) => makePanel(view, context));
      const element = h(
        "div",
        { class: "stack" },
        panels.map((panel) => h("div", { class: "stacked" }, panel.element)),
      );
      return { element, reveal: () => panels.forEach((panel) => panel.reveal?.()) };
    }
  }
}
