// Title, theme switch and tabs.

import type { PageData } from "./data";
import { h } from "./dom";
import { isForPage } from "./keys";
import { addressKeeper, numbers, ranges, readLink } from "./link";
import { tabbed } from "./tabs";
import { isDark, onTheme, setDark } from "./theme";

export function shell(data: PageData): HTMLElement {
  const linked = readLink(window === window.top ? location.hash : "");
  const views = data.views.length;
  const asked = Number(linked.page["view"] ?? 0);
  const first = asked >= 0 && asked < views ? Math.floor(asked) : 0;
  const keep = addressKeeper(() => {
    const page: Record<string, string> = tabs.current() ? { view: String(tabs.current()) } : {};
    if (switched) page["theme"] = isDark() ? "dark" : "light";
    if (tabs.bus.nodes.length) page["nodes"] = ranges(tabs.bus.nodes);
    return { page, views: tabs.states() };
  });
  const tabs = tabbed(data.views, { roles: data.roles, changed: keep }, linked.views);
  let switched = linked.page["theme"] !== undefined;
  if (switched) setDark(linked.page["theme"] === "dark");
  tabs.bus.nodes = numbers(linked.page["nodes"] ?? "");
  const head = h(
    "header",
    {},
    h("h1", {}, data.title),
    views > 1 ? tabs.list : null,
    themeSwitch(() => {
      switched = true;
      keep();
    }),
  );
  document.addEventListener("keydown", (event) => {
    if (isForPage(event)) tabs.key(event);
  });
  const page = h("div", { id: "page" }, head, h("main", {}, tabs.bodies), tabs.bar);
  queueMicrotask(() => tabs.open(first)); // canvases measure themselves: they have to be in the document
  return page;
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
