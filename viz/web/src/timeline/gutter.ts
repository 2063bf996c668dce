// The names of the tracks, with what can be done to each.

import { h } from "../dom";
import { count, figure } from "../format";
import type { TimelineModel } from "./model";
import type { Bar, Heading, Tracks } from "./tracks";

export interface GutterActions {
  pin: (key: string) => void;
  hide: (key: string) => void;
  thin: (keys: string[], thin: boolean) => void;
  open: (group: string) => void; // its empty tracks
}

export class Gutter {
  readonly element = h("div", { class: "gutter" });
  private readonly fixed = h("div", { class: "fixed" });
  private readonly moving = h("div", { class: "moving" });

  constructor(
    private readonly model: TimelineModel,
    private readonly actions: GutterActions,
  ) {
    this.element.append(h("div", { class: "scrolled" }, this.moving), this.fixed);
    for (const event of ["pointerdown", "dblclick"])
      // a drag here would move the timeline
      this.element.addEventListener(event, (found) => found.stopPropagation());
  }

  draw(tracks: Tracks): void {
    const had = (document.activeElement as HTMLElement | null)?.dataset["does"];
    const made = (pinned: boolean): HTMLElement[] => [
      ...tracks.headings.filter((head) => head.pinned === pinned).map((head) => this.heading(head)),
      ...tracks.bars.filter((bar) => bar.pinned === pinned).map((bar) => this.bar(bar)),
    ];
    this.fixed.replaceChildren(...made(true));
    this.moving.replaceChildren(...made(false));
    this.fixed.style.height = `${tracks.pinnedHeight}px`;
    this.element.style.setProperty("--pinned", `${tracks.pinnedHeight}px`);
    if (had) this.element.querySelector<HTMLElement>(`[data-does="${CSS.escape(had)}"]`)?.focus();
  }

  scroll(y: number): void {
    this.moving.style.transform = `translateY(${-y}px)`;
  }

  private heading({ group, y, bars, thin, idle }: Heading): HTMLElement {
    if (idle.length) {
      const text = `${idle.length} empty: ${idle.join(", ")}`;
      const open = (): void => this.actions.open(group);
      return h(
        "div",
        { class: "idle", style: `top:${y}px` },
        h("button", { onclick: open, title: `Show ${text}`, "data-does": `open ${group}` }, text),
      );
    }
    return h(
      "div",
      { class: "head", style: `top:${y}px` },
      h(
        "button",
        {
          "aria-expanded": String(!thin),
          title: thin ? "Show all rows" : "Collapse all",
          onclick: () => this.actions.thin(bars, !thin),
          "data-does": `all ${group}`,
        },
        `${thin ? "▸" : "▾"} ${group}`,
      ),
    );
  }

  private bar(bar: Bar): HTMLElement {
    const { key, name, thin, pinned } = bar;
    const full = `${pinned ? "" : `${bar.group} `}${name}`;
    const act = (does: string, label: string, sign: string, on: () => void): HTMLElement =>
      h(
        "button",
        {
          class: "act",
          title: label,
          "aria-label": `${label}: ${full}`,
          "data-does": `${does} ${key}`,
          onclick: on,
        },
        sign,
      );
    return h(
      "div",
      { class: thin ? "bar thin" : "bar", style: `top:${bar.y}px;height:${bar.height}px` },
      h(
        "button",
        {
          class: "name",
          "aria-expanded": String(!thin),
          title: `${full}: ${thin ? "show all rows" : "collapse"}`,
          onclick: () => this.actions.thin([key], !thin),
          "data-does": `thin ${key}`,
        },
        name,
      ),
      act("pin", pinned ? "Unpin" : "Pin to the top", pinned ? "⤓" : "⤒", () =>
        this.actions.pin(key),
      ),
      act("hide", "Hide", "×", () => this.actions.hide(key)),
      this.most(bar),
    );
  }

  private most(bar: Bar): HTMLElement | null {
    const data = this.model.data.counters[bar.counter];
    if (!data || bar.thin) return null;
    const most = this.model.most[bar.counter] ?? 0;
    return h("span", { class: "most" }, `up to ${figure(most, data.unit)}`);
  }
}

/** The button that shows hidden tracks again. */
export function hiddenButton(number: number, show: () => void): HTMLElement | null {
  return number
    ? h("button", { onclick: show }, `Show ${count(number)} hidden track${number === 1 ? "" : "s"}`)
    : null;
}
