// The whole trace in a strip above the timeline: how busy each device was, and what is in view.

import { h } from "../dom";
import { colour, onTheme, roleLine } from "../theme";
import type { TimelineModel } from "./model";
import type { TimeWindow } from "../window";

export const OVERVIEW = 30;

export class Overview {
  private readonly strip = h("canvas");
  private drawn = 0; // width of the strip; 0: has to be drawn

  constructor(private readonly model: TimelineModel) {
    onTheme(() => (this.drawn = 0));
  }

  paint(context: CanvasRenderingContext2D, window: TimeWindow, left: number, width: number): void {
    if (width < 10) return;
    if (this.drawn !== Math.round(width)) this.render(Math.round(width));
    context.drawImage(this.strip, left, 3);
    const x = (time: number): number => left + this.share(time) * width;
    const [from, to] = [Math.max(left, x(window.from)), Math.min(left + width, x(window.to))];
    context.fillStyle = colour("page");
    context.globalAlpha = 0.65;
    context.fillRect(left, 0, from - left, OVERVIEW - 2);
    context.fillRect(to, 0, left + width - to, OVERVIEW - 2);
    context.globalAlpha = 1;
    context.strokeStyle = colour("accent");
    context.lineWidth = 1.5;
    context.strokeRect(from, 1, Math.max(2, to - from - 1), OVERVIEW - 4);
  }

  /** The time under a share of the strip's width. */
  time(share: number): number {
    const [first, last] = this.model.data.span;
    return first + share * (last - first);
  }

  private share(time: number): number {
    const [first, last] = this.model.data.span;
    return (time - first) / (last - first || 1);
  }

  /** A line per group of tracks; a pixel is as strong as the part of its time that was busy. */
  private render(width: number): void {
    const { model, strip } = this;
    strip.width = width;
    strip.height = OVERVIEW - 6;
    this.drawn = width;
    const context = strip.getContext("2d") as CanvasRenderingContext2D;
    const groups = [...new Set(model.tracks.map((track) => track.group))];
    const high = strip.height / Math.max(1, groups.length);
    groups.forEach((group, number) => {
      const busy = new Float64Array(width);
      const roles: string[] = [];
      for (const track of model.tracks) {
        if (track.group !== group) continue;
        for (const slice of track.levels[0] ?? []) {
          const [from, to] = [
            this.share(model.start(slice)) * width,
            this.share(model.stop(slice)) * width,
          ];
          for (let at = Math.floor(from); at <= Math.min(width - 1, Math.floor(to)); at++) {
            busy[at] =
              (busy[at] as number) + Math.max(0, Math.min(at + 1, to) - Math.max(at, from)) + 1e-3;
            roles[at] = model.role(slice);
          }
        }
      }
      for (let at = 0; at < width; at++) {
        if (!busy[at]) continue;
        context.globalAlpha = Math.min(1, 0.35 + (busy[at] as number));
        context.fillStyle = roleLine(roles[at] as string);
        context.fillRect(at, number * high, 1, Math.max(1, high - 1));
      }
    });
  }
}
