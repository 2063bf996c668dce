// The span of time in view.

export class TimeWindow {
  from: number;
  to: number;

  constructor(
    private readonly first: number,
    private readonly last: number,
  ) {
    [this.from, this.to] = [first, Math.max(last, first + 1)];
  }

  get span(): number {
    return this.to - this.from;
  }

  /** Show a span, not less than 50 ns and not more than there is (and a little). */
  show(from: number, to: number): void {
    const whole = Math.max(1, this.last - this.first);
    const span = Math.max(50, Math.min(to - from, whole * 1.04));
    const middle = (from + to) / 2;
    const margin = whole * 0.02;
    const start = Math.max(
      this.first - margin,
      Math.min(this.last + margin - span, middle - span / 2),
    );
    [this.from, this.to] = [start, start + span];
  }

  /** Bring a span into view, and make it so wide that it can be seen. */
  reveal(start: number, stop: number, pixels: number): void {
    const wide = ((stop - start) / this.span) * pixels;
    if (wide < 12) return this.show(start - (stop - start) * 30, stop + (stop - start) * 30);
    if (start >= this.from && stop <= this.to) return;
    const middle = (start + stop) / 2;
    this.show(middle - this.span / 2, middle + this.span / 2);
  }

  all(): void {
    this.show(this.first, this.last);
  }

  zoom(factor: number, at: number): void {
    this.show(at - (at - this.from) / factor, at + (this.to - at) / factor);
  }

  pan(share: number): void {
    this.show(this.from + share * this.span, this.to + share * this.span);
  }
}

/** Round times for the ruler, about one per 110 pixels. */
export function ticks(window: TimeWindow, width: number): { times: number[]; step: number } {
  const rough = window.span / Math.max(1, width / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((value) => value >= rough) ?? 10 * power;
  const found: number[] = [];
  for (let time = Math.ceil(window.from / step) * step; time <= window.to; time += step)
    found.push(time);
  return { times: found, step };
}
