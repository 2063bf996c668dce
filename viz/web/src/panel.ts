// The frame that graph, passes and timeline share: tools above, list left, details right.

import { type Child, h } from "./dom";
import { ROLE_ORDER, SIGNS } from "./theme";

interface Parts {
  notes: string[];
  tools: Child[];
  summary?: HTMLElement;
  legend?: HTMLElement;
  left?: HTMLElement;
  main: HTMLElement;
  right?: HTMLElement;
  help: Child;
}

export function frame(parts: Parts): HTMLElement {
  const help = h("div", { class: "help", hidden: true }, parts.help);
  const ask = h(
    "button",
    {
      "aria-expanded": "false",
      "data-keys": "",
      title: "Mouse and keyboard (?)",
      onclick: () => {
        help.hidden = !help.hidden;
        ask.setAttribute("aria-expanded", String(!help.hidden));
      },
    },
    "Keys",
  );
  return h(
    "div",
    { class: "panel" },
    h("div", { class: "tools", role: "group", "aria-label": "View" }, parts.tools, ask),
    help,
    h(
      "div",
      { class: "said" },
      parts.summary,
      parts.notes.map((note) => h("p", { class: "note" }, note)),
      parts.legend,
    ),
    h(
      "div",
      { class: "columns" },
      parts.left && h("div", { class: "left" }, parts.left),
      parts.main,
      parts.right,
    ),
  );
}

/** A view that is read like a page: heading, notes, and what follows. */
export function textPage(
  data: { title: string; notes: string[] },
  ...content: Child[]
): HTMLElement {
  return h(
    "div",
    { class: "page-text" },
    h("h2", {}, data.title),
    data.notes.map((note) => h("p", { class: "note" }, note)),
    content,
  );
}

/** Buttons for those who have no wheel. */
export function zoomButtons(zoom: (factor: number) => void, fit: () => void): HTMLElement {
  return h(
    "span",
    { class: "zoom" },
    h("button", { title: "Zoom out", "aria-label": "Zoom out", onclick: () => zoom(1 / 1.4) }, "−"),
    h("button", { title: "Zoom in", "aria-label": "Zoom in", onclick: () => zoom(1.4) }, "+"),
    h("button", { title: "Show everything", onclick: fit }, "Fit"),
  );
}

/** Entries of a legend for the roles that occur. */
export function roleLegend(used: Set<string>, names: Record<string, string>): HTMLElement[] {
  return ROLE_ORDER.filter((role) => used.has(role)).map((role) => {
    const style = `border-color:var(--${role}-line);background:var(--${role}-fill)`;
    return h("li", {}, h("i", { style }, SIGNS[role] ?? ""), names[role] ?? role);
  });
}

/** Of all views that show the playhead. */
const PLAY: [string, string][] = [
  ["space", "play the typical step, pause"],
  ["[ ]", "event before, next event"],
  ["{ }", "slower, faster"],
];

const HELP: Record<string, [string, string][]> = {
  graph: [
    ["wheel, + −", "zoom"],
    ["drag", "move"],
    ["click, arrow keys", "select a box, follow its links"],
    ["click a folded box, Enter", "open it"],
    ["shift click", "select a folded box"],
    ["click a bracket, f", "fold a group again"],
    ["hover a line", "shape and bytes of what flows along it"],
    ["/", "search"],
    ["t", "show the selection in the timeline"],
    ["0", "show everything"],
    ["Esc", "select nothing"],
  ],
  passes: [
    ["← →", "pass before, pass after"],
    ["wheel, + −", "zoom"],
    ["drag", "move"],
    ["click", "what a box is"],
    ["0", "show everything"],
  ],
  timeline: [
    ["wheel, w s, + −, ↑ ↓", "zoom in time"],
    ["drag, a d, ← →, shift wheel", "move in time"],
    ["click", "select a slice"],
    [", .", "slice before, slice after"],
    ["shift drag, drag in the ruler, m", "add up what happened in an area"],
    ["f", "zoom to the selection"],
    ["Enter", "open the selected layer, fold it"],
    ["p, c, h", "pin, collapse, hide the track of the selection"],
    ["g", "show the selection in the graph"],
    ["/", "search"],
    ["0", "show everything"],
    ["Esc", "select nothing"],
  ],
};

export function helpText(view: "graph" | "passes" | "timeline"): Child {
  return h(
    "dl",
    {},
    [...(HELP[view] ?? []), ...(view === "passes" ? [] : PLAY)].flatMap(([keys, what]) => [
      h("dt", {}, keys),
      h("dd", {}, what),
    ]),
  );
}
