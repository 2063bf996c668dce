// One moment of the typical step for all views, and the clock that moves it.

import type { PlayData, ViewData } from "../data";

export const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4] as const;
const WHOLE = 8000; // milliseconds that the step takes at speed 1

export class Playhead {
  time: number | null = null; // nanoseconds; null: not in use
  speed = 1;
  private playing = false;
  private last = 0;
  private readonly listeners: (() => void)[] = [];
  private readonly events: number[]; // when something begins or ends

  constructor(readonly data: PlayData) {
    const waits = data.waits.flatMap(({ span }) => span);
    const all = [...data.span, ...data.start, ...data.stop, ...waits];
    this.events = [...new Set(all)].sort((a, b) => a - b);
  }

  listen(listener: () => void): void {
    this.listeners.push(listener);
  }

  get isPlaying(): boolean {
    return this.playing;
  }

  /** Go to a moment; null puts the playhead away. */
  go(time: number | null): void {
    const [from, to] = this.data.span;
    this.time = time === null ? null : Math.max(from, Math.min(to, time));
    if (time === null) this.playing = false;
    this.tell();
  }

  play(): void {
    const [from, to] = this.data.span;
    if (this.time === null || this.time >= to) this.time = from;
    this.playing = true;
    this.last = performance.now();
    requestAnimationFrame((now) => this.tick(now));
    this.tell();
  }

  pause(): void {
    this.playing = false;
    this.tell();
  }

  toggle(): void {
    if (this.playing) this.pause();
    else this.play();
  }

  faster(by: 1 | -1): void {
    const at = SPEEDS.findIndex((speed) => speed === this.speed) + by;
    this.speed = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, at))] ?? 1;
    this.tell();
  }

  /** To the next moment at which something begins or ends, or the one before. */
  step(by: 1 | -1): void {
    this.playing = false;
    const { events } = this;
    const now = this.time ?? this.data.span[0] - by;
    const found = by > 0 ? events.find((at) => at > now) : events.filter((at) => at < now).at(-1);
    this.go(found ?? now);
  }

  private tick(now: number): void {
    if (!this.playing || this.time === null) return;
    const [from, to] = this.data.span;
    this.time += ((now - this.last) / WHOLE) * (to - from) * this.speed;
    this.last = now;
    if (this.time >= to) [this.time, this.playing] = [to, false];
    else requestAnimationFrame((later) => this.tick(later));
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}

/** Whether a view shows the moment of the playhead. */
export function isPlayed(view: ViewData): boolean {
  if (view.type === "stack") return view.views.some(isPlayed);
  return view.type === "graph" || view.type === "timeline" || view.type === "memory";
}

/** The playhead of a page, if it has what one goes through. */
export function playheadOf(views: ViewData[]): Playhead | null {
  const inner = views.flatMap((view) => (view.type === "stack" ? view.views : [view]));
  for (const view of inner)
    if (view.type === "timeline" && view.play?.nodes.length) return new Playhead(view.play);
  return null;
}
