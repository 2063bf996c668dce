// A run within a page of several: tabs of its own, with a selection and a playhead of their own.

import type { Context, Panel, State } from "./bus";
import type { RunData } from "./data";
import { h } from "./dom";
import { numbers, ranges } from "./link";
import { tabbed } from "./tabs";

export function runPanel(data: RunData, context: Context): Panel {
  const restored = new Map<number, State>();
  const tabs = tabbed(data.views, context, restored);
  let first: number | null = 0;
  return {
    element: h(
      "div",
      { class: "run" },
      tabs.list,
      h("div", { class: "run-views" }, tabs.bodies),
      tabs.bar,
    ),
    reveal: () => {
      tabs.open(first ?? tabs.current());
      first = null;
    },
    key: tabs.key,
    link: () => {
      const found: State = {};
      if (first ?? tabs.current()) found["view"] = String(first ?? tabs.current());
      if (tabs.bus.nodes.length) found["nodes"] = ranges(tabs.bus.nodes);
      for (const [view, state] of tabs.states())
        for (const [name, value] of Object.entries(state)) found[`${view}.${name}`] = value;
      return found;
    },
    restore: (state) => {
      for (const [key, value] of Object.entries(state)) {
        const [, view, name] = /^(\d+)\.(.+)$/.exec(key) ?? [];
        if (view !== undefined && name !== undefined)
          restored.set(Number(view), { ...restored.get(Number(view)), [name]: value });
      }
      const asked = Number(state["view"] ?? 0);
      first = asked >= 0 && asked < data.views.length ? Math.floor(asked) : 0;
      tabs.bus.nodes = numbers(state["nodes"] ?? "");
    },
  };
}
