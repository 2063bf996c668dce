// The recorded step, replayed with some operators faster.

import type { ReplayData } from "../data";
import { type Child, h } from "../dom";
import { figure, nanoseconds } from "../format";
import type { GraphModel } from "./model";

/** The values of the slider, which starts at twice as fast. */
const FACTORS = [0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 5, 10, Infinity];

/** Nanoseconds of the step if some nodes, by position, were so many times as fast. */
export function replayed(data: ReplayData, nodes: Set<number>, faster: number): number {
  const scales = data.owners.map((owners) => {
    const chosen = owners.filter((node) => nodes.has(node)).length;
    return owners.length ? 1 - (chosen / owners.length) * (1 - 1 / faster) : 1;
  });
  const scaleOf = (at: number): number => scales[data.owner[at] as number] ?? 1;
  const [own, more] = [Float64Array.from(data.time), new Float64Array(data.time.length)];
  for (const [waiting, source, time, isInside] of data.waits ?? []) {
    if (isInside) own[waiting] = (own[waiting] as number) - time; // the rest scales with itself
    more[waiting] =
      (more[waiting] as number) + time * (isInside ? scaleOf(source) : scaleOf(source) - 1);
  }
  const stops = new Float64Array(data.time.length);
  let last = 0;
  own.forEach((time, at) => {
    const sources = data.before[at] ?? [];
    let ready = sources.length ? -Infinity : 0;
    for (const source of sources) ready = Math.max(ready, stops[source] as number);
    stops[at] = ready + (data.delay[at] ?? 0) + time * scaleOf(at) + (more[at] as number);
    last = Math.max(last, stops[at] as number);
  });
  return last;
}

/** A slider: the time of the step if a box were faster. */
export function whatIf(model: GraphModel, members: number[]): Child {
  const data = model.overlay.replay;
  const nodes = new Set(members);
  if (!data || !data.owners.some((owners) => owners.some((node) => nodes.has(node)))) return null;
  const said = h("output", {});
  const slider = h("input", {
    type: "range",
    min: 0,
    max: FACTORS.length - 1,
    value: FACTORS.indexOf(2),
    "aria-label": "How many times as fast",
    oninput: () => say(),
  });
  const say = (): void => {
    const faster = FACTORS[slider.valueAsNumber] as number;
    const step = replayed(data, nodes, faster);
    const change = step / data.step - 1;
    const named = faster === Infinity ? "no time at all" : `${faster} times as fast`;
    const text =
      Math.abs(change) < 0.0005
        ? "as it was"
        : `${change > 0 ? "+" : "−"}${figure(Math.abs(change), "fraction")}`;
    slider.setAttribute("aria-valuetext", named);
    said.replaceChildren(`${named}: step ${nanoseconds(step)}, ${text}`);
  };
  say();
  return [h("h3", {}, "If it were faster"), h("p", { class: "what-if" }, slider, said)];
}
