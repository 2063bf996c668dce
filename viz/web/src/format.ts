// How figures are written, the same in every view.

import type { Cell, Unit } from "./data";

function steps(value: number, scale: [number, string][]): string {
  for (const [size, unit] of scale) {
    if (Math.abs(value) >= size) {
      return `${digits(value / size)} ${unit}`;
    }
  }
  const [size, unit] = scale[scale.length - 1] as [number, string];
  return value === 0 && unit === "ns" ? "0" : value === 0 ? `0 ${unit}` : `${digits(value / size)} ${unit}`;
}

/** Three significant digits. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return count(Math.round(value));
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

export function seconds(value: number): string {
  return steps(value, [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
    [1e-9, "ns"],
  ]);
}

export function nanoseconds(value: number): string {
  return seconds(value * 1e-9);
}

export function bytes(value: number): string {
  return steps(value, [
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
    [1, "B"],
  ]);
}

export function figure(value: Cell, unit: Unit): string {
  if (value === null) return "–";
  if (typeof value === "string") return value;
  switch (unit) {
    case "seconds":
      return seconds(value);
    case "bytes":
      return bytes(value);
    case "fraction":
      return `${(value * 100).toFixed(value !== 0 && Math.abs(value) < 0.1 ? 1 : 0)}%`;
    case "ratio":
      return `×${value.toFixed(2)}`;
    case "count":
      return count(value);
    default:
      return digits(value);
  }
}

export function shape(dims: number[]): string {
  return dims.length ? `[${dims.join(", ")}]` : "scalar";
}

export function plural(value: number, noun: string): string {
  if (value === 1) return `1 ${noun}`;
  return `${count(value)} ${noun.endsWith("x") ? `${noun}es` : `${noun}s`}`;
}

/** Cut the middle out of a text that is too long. */
export function shorten(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const head = Math.max(1, (longest - 1) >> 1);
  const tail = longest - 1 - head;
  return `${text.slice(0, head)}…${tail > 0 ? text.slice(-tail) : ""}`;
}
