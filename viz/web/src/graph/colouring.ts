// Colours by something measured, with its figure in every box.

import { h } from "../dom";
import { bytes, seconds } from "../format";
import { heat } from "../theme";
import type { Visible } from "./fold";
import type { GraphModel } from "./model";
import type { Look } from "./scene";

export const MEASURES = ["time", "memory", "slack", "effect"] as const;
export type ColourBy = "role" | (typeof MEASURES)[number];

export class Colouring {
  by: ColourBy = "role";
  private values: (number | null)[] = []; // by box
  private largest = 0;

  constructor(private readonly model: GraphModel) {}

  /** What there is to choose from. */
  choices(): [string, string][] {
    const measured = MEASURES.filter((name) => this.model.overlay[name]);
    return ["role", ...measured].map((name) => [name, name]);
  }

  /** Add up the figures of what each box stands for. */
  update(shown: Visible): void {
    const column = this.by === "role" ? undefined : this.model.overlay[this.by];
    this.values = shown.members.map((members) => {
      const known = members.flatMap((member) => column?.[member] ?? []);
      if (!known.length) return null;
      return this.by === "slack" ? Math.min(...known) : known.reduce((a, b) => a + b, 0);
    });
    this.largest = this.values.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
  }

  apply(look: Look, box: number): void {
    if (this.by === "role") return;
    const value = this.values[box] ?? null;
    look.loud = true;
    look.detail = value === null ? "not measured" : this.figure(value);
    look.fill = "transparent";
    if (value === null || !this.largest) return;
    const share = value / this.largest;
    // Few operators take most of the time: the root tells the others apart. No slack is hot.
    look.fill = heat(this.by === "slack" ? 1 - share : Math.sqrt(share));
  }

  legend(): HTMLElement {
    const ends = [this.figure(0), this.figure(this.largest)];
    const [low, high] = this.by === "slack" ? ends.reverse() : ends;
    const colours = [0, 0.25, 0.5, 0.75, 1].map(heat).join();
    const style = `background:linear-gradient(90deg,${colours})`;
    return h("li", {}, low, h("i", { class: "scale", style }), `${high} ${this.by}`);
  }

  private figure(value: number): string {
    return this.by === "memory" ? bytes(value) : seconds(value);
  }
}
