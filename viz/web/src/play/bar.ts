// The controls of the playhead, and in words what happens at its moment.

import type { ViewData } from "../data";
import { h } from "../dom";
import { moment } from "../format";
import { type Playhead, SPEEDS } from "./playhead";

const POINTS = 1000; // of the slider

export class PlayBar {
  readonly element: HTMLElement;
  private readonly toggle = h("button", { class: "play", onclick: () => this.playhead.toggle() });
  private readonly away = h(
    "button",
    { title: "Put the playhead away (Esc)", onclick: () => this.playhead.go(null) },
    "Stop",
  );
  private readonly slider: HTMLInputElement;
  private readonly speed: HTMLSelectElement;
  private readonly said = h("output", { class: "play-said" });

  constructor(
    private readonly playhead: Playhead,
    private readonly names: (nodes: number[]) => string,
  ) {
    const [from, to] = playhead.data.span;
    this.slider = h("input", {
      type: "range",
      min: 0,
      max: POINTS,
      value: 0,
      "aria-label": `Moment of step ${playhead.data.step}`,
      oninput: () => {
        const share = this.slider.valueAsNumber / POINTS; // first: it follows the playhead
        playhead.pause();
        playhead.go(from + share * (to - from));
      },
    });
    this.speed = h(
      "select",
      {
        "aria-label": "Speed",
        title: "Speed ({ and })",
        onchange: () => {
          playhead.speed = Number(this.speed.value);
        },
      },
      SPEEDS.map((speed) => h("option", { value: String(speed) }, `${speed}×`)),
    );
    const step = (by: 1 | -1, text: string, title: string): HTMLElement =>
      h("button", { title, "aria-label": title, onclick: () => playhead.step(by) }, text);
    this.element = h(
      "div",
      { class: "play-bar", role: "group", "aria-label": `Play step ${playhead.data.step}` },
      this.toggle,
      step(-1, "◂", "Event before ([)"),
      step(1, "▸", "Next event (])"),
      this.slider,
      this.speed,
      this.away,
      this.said,
    );
    playhead.listen(() => this.show());
    this.show();
  }

  /** Do what a key asks for; false if it is none of ours. */
  key(event: KeyboardEvent): boolean {
    const { playhead } = this;
    const commands: Record<string, () => void> = {
      " ": () => playhead.toggle(),
      "[": () => playhead.step(-1),
      "]": () => playhead.step(1),
      "{": () => playhead.faster(-1),
      "}": () => playhead.faster(1),
    };
    if (playhead.time !== null) commands["Escape"] = () => playhead.go(null);
    const command = commands[event.key];
    if (!command) return false;
    event.preventDefault();
    command();
    return true;
  }

  private show(): void {
    const { playhead } = this;
    const { span, step } = playhead.data;
    const label = playhead.isPlaying ? "Pause" : "Play";
    this.toggle.textContent = playhead.isPlaying ? "❚❚ Pause" : "▶ Play";
    this.toggle.setAttribute("aria-label", `${label} step ${step}`);
    this.toggle.title = `${label} (space)`;
    this.speed.value = String(playhead.speed);
    // It keeps its place: or the slider would move under the pointer that drags it.
    this.away.style.visibility = playhead.time === null ? "hidden" : "visible";
    const time = playhead.time ?? span[0];
    this.slider.value = String(Math.round((POINTS * (time - span[0])) / (span[1] - span[0] || 1)));
    this.said.textContent = playhead.time === null ? `step ${step}` : this.words(playhead.time);
  }

  private words(time: number): string {
    const { span, nodes, start, stop, waits } = this.playhead.data;
    const running: number[] = [];
    for (let k = 0; k < nodes.length && (start[k] as number) <= time; k++)
      if (time < (stop[k] as number)) running.push(nodes[k]?.[0] as number);
    const waiting = waits.filter(({ span: [from, to] }) => from <= time && time < to);
    const parts = [
      moment(time - span[0], (span[1] - span[0]) / 200),
      this.names(running),
      ...waiting.map(({ device, text }) => `device ${device} waits ${text}`),
    ];
    return parts.filter(Boolean).join(" · ");
  }
}

const MOST = 3; // operators that are named

/** What says which operators run, by their numbers: those of all devices that do the same once. */
export function runningNames(views: ViewData[]): (nodes: number[]) => string {
  const graph = views.find((view) => view.type === "graph");
  const nodes = graph?.type === "graph" ? graph.graph.nodes : [];
  const known = new Map(nodes.map((node) => [node.id, node]));
  return (ids) => {
    const found = new Map<string, number[]>();
    for (const id of ids) {
      const node = known.get(id);
      if (!node) continue;
      const devices = found.get(node.name) ?? [];
      found.set(node.name, node.device === null ? devices : [...devices, node.device]);
    }
    const texts = [...found].map(([name, devices]) =>
      devices.length ? `${name} on ${devices.sort((a, b) => a - b).join(", ")}` : name,
    );
    const more = texts.length > MOST ? `, and ${texts.length - MOST} more` : "";
    return texts.slice(0, MOST).join(", ") + more;
  };
}
