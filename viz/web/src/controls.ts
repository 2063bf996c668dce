// The controls of a view by name; their values are stored in links to the page.

import type { State } from "./bus";
import { checkbox, choice } from "./dom";

type Input = HTMLInputElement | HTMLSelectElement;

const valueOf = (input: Input): string =>
  input.type === "checkbox" ? String((input as HTMLInputElement).checked) : input.value;

export class Controls {
  private readonly inputs = new Map<string, { input: Input; first: string }>();

  constructor(private readonly changed: () => void) {}

  /** A labelled select, see `choice`. */
  choice(name: string, ...args: Parameters<typeof choice>): HTMLElement {
    const { element, select } = choice(...args);
    this.adopt(name, select);
    return element;
  }

  /** A labelled check box, see `checkbox`. */
  checkbox(name: string, ...args: Parameters<typeof checkbox>): HTMLElement {
    const { element, input } = checkbox(...args);
    this.adopt(name, input);
    return element;
  }

  /** Watch a control that was made elsewhere. */
  adopt(name: string, input: Input): void {
    this.inputs.set(name, { input, first: valueOf(input) });
    for (const event of ["input", "change"]) input.addEventListener(event, this.changed);
  }

  /** The initial value of a check box, if it is known only when there is something to see. */
  begin(name: string, checked: boolean): void {
    const found = this.inputs.get(name);
    if (!found) return;
    (found.input as HTMLInputElement).checked = checked;
    found.first = String(checked);
  }

  /** The values that differ from the initial ones. */
  link(): State {
    const found: State = {};
    for (const [name, { input, first }] of this.inputs)
      if (valueOf(input) !== first) found[name] = valueOf(input);
    return found;
  }

  restore(state: State): void {
    for (const [name, { input }] of this.inputs) {
      const value = state[name];
      if (value === undefined) continue;
      if (input.type === "checkbox") (input as HTMLInputElement).checked = value === "true";
      else input.value = value;
      for (const event of ["input", "change"]) input.dispatchEvent(new Event(event));
    }
  }
}
