// Views as tabs: those of the page, and those of a run within a page of several runs.

import { Bus, type Context, type Panel, type State } from "./bus";
import type { ViewData } from "./data";
import { h, uniqueId } from "./dom";
import { makePanel } from "./panels";
import { PlayBar, runningNames } from "./play/bar";
import { isPlayed, playheadOf } from "./play/playhead";

export interface Tabs {
  /** The buttons; views of their own bus know nothing of other tabs. */
  list: HTMLElement;
  bodies: HTMLElement[];
  bar: HTMLElement | null;
  bus: Bus;
  open: (number: number) => void;
  current: () => number;
  key: (event: KeyboardEvent) => void;
  /** By view: the state for a link, and what a link says of views that were not opened yet. */
  states: () => Map<number, State>;
}

/** Views as tabs, with a selection and a playhead of their own. */
export function tabbed(
  views: ViewData[],
  base: Pick<Context, "roles" | "changed">,
  linked: Map<number, State>,
): Tabs {
  const panels = new Map<number, Panel>();
  const playhead = playheadOf(views);
  const context: Context = { ...base, bus: new Bus(), playhead };
  const bar = playhead && new PlayBar(playhead, runningNames(views));
  let current = 0;
  const ids = views.map(() => uniqueId("view"));
  const bodies = views.map((view, number) =>
    h("section", {
      class: `body ${view.type}`,
      id: ids[number] as string,
      role: views.length > 1 ? "tabpanel" : null,
      "aria-label": view.title,
      hidden: true,
    }),
  );
  const tabs = views.map((view, number) =>
    h(
      "button",
      {
        role: "tab",
        id: `${ids[number]}-tab`,
        "aria-controls": ids[number] as string,
        onclick: () => open(number),
      },
      tabName(view.title),
    ),
  );

  function open(number: number): void {
    const view = views[number];
    if (!view) return;
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === number));
      tab.tabIndex = at === number ? 0 : -1;
    });
    bodies.forEach((body, at) => (body.hidden = at !== number));
    let panel = panels.get(number);
    if (!panel) {
      panel = makePanel(view, context);
      panels.set(number, panel);
      bodies[number]?.append(panel.element);
      const state = linked.get(number);
      if (state) panel.restore?.(state);
    }
    current = number;
    if (bar) bar.element.hidden = !isPlayed(view);
    panel.reveal?.();
    base.changed();
  }

  views.forEach((view, number) => {
    for (const inner of view.type === "stack" ? view.views : [view]) {
      if (inner.type === "graph" || inner.type === "timeline")
        context.bus.offer(inner.type, () => open(number));
    }
  });
  const list = h(
    "div",
    {
      class: "tabs",
      role: "tablist",
      "aria-label": "Views",
      onkeydown: (event: KeyboardEvent) => arrows(event),
    },
    tabs,
  );
  function arrows(event: KeyboardEvent): void {
    const at = tabs.indexOf(document.activeElement as HTMLButtonElement);
    const moves: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      Home: 0,
      End: tabs.length - 1,
    };
    const target = moves[event.key];
    if (at < 0 || target === undefined) return;
    event.preventDefault();
    const number = (target + tabs.length) % tabs.length;
    open(number);
    tabs[number]?.focus();
  }
  function key(event: KeyboardEvent): void {
    const view = views[current];
    if (view?.type === "run") panels.get(current)?.key?.(event);
    else if (event.key === "?") bodies[current]?.querySelector<HTMLElement>("[data-keys]")?.click();
    else if (bar && !bar.element.hidden && bar.key(event)) return;
    else panels.get(current)?.key?.(event);
  }
  function states(): Map<number, State> {
    const found = new Map(linked);
    for (const [number, panel] of panels) found.set(number, panel.link?.() ?? {});
    return found;
  }
  const element = bar?.element ?? null;
  return {
    list,
    bodies,
    bar: element,
    bus: context.bus,
    open,
    current: () => current,
    key,
    states,
  };
}

/** "Timeline · 2 devices · 3 steps" is a heading; its first part names the tab. */
function tabName(title: string): string {
  return title.split(" · ")[0] ?? title;
}
