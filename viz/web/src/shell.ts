// Title, theme switch and tabs.

import type { Context, Panel } from "./bus";
import type { PageData, ViewData } from "./data";
import { h, uniqueId } from "./dom";
import { makePanel } from "./panels";
import { isDark, onTheme, setDark } from "./theme";

export function shell(data: PageData, context: Context): HTMLElement {
  const panels = new Map<number, Panel>();
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
    }
    panel.reveal?.();
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
    themeSwitch(),
  );
  const page = h("div", { id: "page" }, head, h("main", {}, bodies));
  queueMicrotask(() => open(0)); // canvases measure themselves: they have to be in the document
  return page;
}

/** "Timeline · 2 devices · 3 steps" is a heading; its first part names the tab. */
function tabName(title: string): string {
  return title.split(" · ")[0] ?? title;
}

function themeSwitch(): HTMLElement {
  const name = (): string => (isDark() ? "Light" : "Dark");
  const button = h("button", { class: "theme", onclick: () => setDark(!isDark()) }, name());
  const label = (): void => {
    button.textContent = name();
    button.setAttribute("aria-label", `Use ${name().toLowerCase()} colours`);
  };
  label();
  onTheme(label);
  return button;
}
