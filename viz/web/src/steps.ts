// The time of every step, as bars; one opens its step in the timeline.

import type { Context } from "./bus";
import type { TextSection } from "./data";
import { type Child, h } from "./dom";
import { plural, seconds } from "./format";

const MOST = 240; // bars; of more steps, each stands for several, and is as high as the longest

type Steps = NonNullable<TextSection["steps"]>;

interface Bar {
  first: number; // positions
  last: number;
  longest: number; // position of the longest one
}

function barsOf({ seconds: times }: Steps): Bar[] {
  const size = Math.ceil(times.length / MOST);
  const found: Bar[] = [];
  for (let first = 0; first < times.length; first += size) {
    const last = Math.min(times.length, first + size) - 1;
    let longest = first;
    for (let at = first; at <= last; at++)
      if ((times[at] as number) > (times[longest] as number)) longest = at;
    found.push({ first, last, longest });
  }
  return found;
}

/** Steps that do not count may take a hundred times as long: bars end at a height, with a mark. */
export function everyStep(steps: Steps, context: Context): Child {
  const bars = barsOf(steps);
  const counted = steps.seconds.slice(steps.left_out);
  const top = counted.reduce((a, b) => Math.max(a, b), steps.median) * 1.15 || 1;
  const several = bars.length < steps.seconds.length;
  const canOpen = context.bus.has("timeline");
  const drawn = bars.map(({ first, last, longest }) => {
    const time = steps.seconds[longest] as number;
    const [from, to] = [steps.numbers[first], steps.numbers[last]];
    const which = several
      ? `steps ${from} to ${to}, the longest is ${steps.numbers[longest]}`
      : `step ${from}`;
    const isOut = longest < steps.left_out;
    const title = `${which}: ${seconds(time)}${isOut ? ", not counted" : ""}`;
    return h("button", {
      class: `step-bar${isOut ? " out" : ""}${time > top ? " cut" : ""}`,
      style: `height:${Math.max(1.5, (100 * Math.min(time, top)) / top)}%`,
      title,
      "aria-label": canOpen ? `${title}; show in timeline` : title,
      disabled: !canOpen,
      onclick: () => context.bus.openStep(steps.numbers[longest] as number),
    });
  });
  const median = `bottom:${(100 * steps.median) / top}%`;
  const notes = [
    `Steps ${steps.numbers[0]} to ${steps.numbers[steps.numbers.length - 1]}`,
    steps.left_out
      ? `not counted: the first ${steps.left_out > 1 ? plural(steps.left_out, "step") : "one"}`
      : "",
    several ? "a bar is the longest of several" : "",
    canOpen ? "a click shows a step in the timeline" : "",
  ];
  return [
    h(
      "div",
      { class: "step-bars", role: "group", "aria-label": "Time of every step" },
      drawn,
      h("span", { class: "median", style: median }, `median ${seconds(steps.median)}`),
    ),
    h("p", { class: "note" }, notes.filter(Boolean).join("; ")),
  ];
}
