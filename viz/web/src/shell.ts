// Title, theme switch and tabs.

import { Bus, type Context, type Panel } from "./bus";
import type { PageData, ViewData } from "./data";
import { h, uniqueId } from "./dom";
import { isForPage } from "./keys";
import { addressKeeper, numbers, ranges, readLink } from "./link";
import { makePanel } from "./panels";
import { PlayBar, runningNames } from "./play/bar";
import { isPlayed, playheadOf } from "./play/playhead";
import { isDark, onTheme, setDark } from "./theme";

export function shell(data: PageData): HTMLElement {
  const panels = new Map<number, Panel>();
  const linked = readLink(window === window.top ? location.hash : "");
  const views = data.views.length;
  const asked = Number(linked.page["view"] ?? 0);
  let current = asked >= 0 && asked < views ? Math.floor(asked) : 0;
  const keep = addressKeeper(() => {
    const page: Record<string, string> = current ? { view: String(current) } : {};
    if (switched) page["theme"] = isDark() ? "dark" : "light";
    if (context.bus.nodes.length) page["nodes"] = ranges(context.bus.nodes);
    const found = new Map(linked.views); // of views that were not opened yet, what the link says
    for (const [number, panel] of panels) found.set(number, panel.link?.() ?? {});
    return { page, views: found };
  });
  const playhead = playheadOf(data.views);
  const context: Context = { bus: new Bus(), roles: data.roles, changed: keep, playhead };
  const bar = playhead && new PlayBar(playhead, runningNames(data.views));
  let switched = linked.page["theme"] !== undefined;
  if (switched) setDark(linked.page["theme"] === "dark");
  context.bus.nodes = numbers(linked.page["nodes"] ?? "");
  const ids = data.views.map(() => uniqueId("view"));
  const bodies = data.views.map((view, number) =>
    h("section", {
      class: `body ${view.type}`,
      id: ids[number] as string,
      role: data.views.length > 1 ? "tabpanel" : null,
      "aria-label": view.title,
      hidden: true,
    }),
  );
  const tabs = data.views.map((view, number) =>
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
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === number));
      tab.tabIndex = at === number ? 0 : -1;
    });
    bodies.forEach((body, at) => (body.hidden = at !== number));
    let panel = panels.get(number);
    if (!panel) {
      panel = makePanel(data.views[number] as ViewData, context);
      panels.set(number, panel);
      bodies[number]?.append(panel.element);
      const state = linked.views.get(number);
      if (state) panel.restore?.(state);
    }
    current = number;
    if (bar) bar.element.hidden = !isPlayed(data.views[number] as ViewData);
    panel.reveal?.();
    keep();
  }

  data.views.forEach((view, number) => {
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
  const head = h(
    "header",
    {},
    h("h1", {}, data.title),
    data.views.length > 1 ? list : null,
    themeSwitch(() => {
      switched = true;
      keep();
    }),
  );
  document.addEventListener("keydown", (event) => {
    if (!isForPage(event)) return;
    if (event.key === "?") bodies[current]?.querySelector<HTMLElement>("[data-keys]")?.click();
    else if (bar && !bar.element.hidden && bar.key(event)) return;
    else panels.get(current)?.key?.(event);
  });
  const page = h("div", { id: "page" }, head, h("main", {}, bodies), bar?.element ?? null);
  queueMicrotask(() => open(current)); // canvases measure themselves: they have to be in the document
  return page;
}

/** "Timeline · 2 devices · 3 steps" is a heading; its first part names the tab. */
function tabName(title: string): string {
  return title.split(" · ")[0] ?? title;
}

function themeSwitch(changed: () => void): HTMLElement {
  const name = (): string => (isDark() ? "Light" : "Dark");
  const button = h("button", { class: "theme" }, name());
  button.addEventListener("click", () => {
    setDark(!isDark());
    changed();
  });
  const label = (): void => {
    button.textContent = name();
    button.setAttribute("aria-label", `Use ${name().toLowerCase()} colours`);
  };
  label();
  onTheme(label);
  return button;
}
