// The column beside a drawing that tells of what is selected.

import { type Child, children, h } from "./dom";

export class Side {
  readonly element: HTMLElement;

  /**
   * @param close what its button does
   */
  constructor(private readonly close: () => void) {
    const label = "Details of the selection";
    this.element = h("aside", { class: "details", "aria-label": label, hidden: true });
  }

  say(content: Child): void {
    const close = h(
      "button",
      { class: "close", "aria-label": "Close details", onclick: this.close },
      "×",
    );
    this.element.hidden = false;
    this.element.replaceChildren(h("div", { "aria-live": "polite" }, close, ...children(content)));
  }

  hide(): void {
    this.element.hidden = true;
    this.element.replaceChildren();
  }
}
