// How figures are written, the same in every view.

import type { Cell, Unit } from "./data";

function steps(value: number, scale: [number, string][], write: (value: number) => string): string {
  const last = scale[scale.length - 1] as [number, string];
  const [size, unit] = scale.find(([size]) => Math.abs(value) >= size) ?? last;
  return value === 0 ? "0" : `${write(value / size)} ${unit}`;
}

/** Three significant digits. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) return count(Math.round(value));
  return value.toFixed(size >= 9.995 ? 1 : 2);
}

const ENGLISH = new Intl.NumberFormat("en-US"); // once: making one takes longer than all it writes

export function count(value: number): string {
  return ENGLISH.format(value);
}

/** A time; whole nanoseconds, else three significant digits. */
export function seconds(value: number): string {
  const scale: [number, string][] = [
    [1, "s"],
    [1e-3, "ms"],
    [1e-6, "µs"],
    [1e-9, "ns"],
  ];
  const write = (size: number): string =>
    Math.abs(size) >= 100 ? count(Math.round(size)) : size.toPrecision(3);
  return Math.abs(value) < 1e-6 ? steps(value, scale, digits) : steps(value, scale, write);
}

export function nanoseconds(value: number): string {
  return seconds(value * 1e-9);
}

/** A point in time, in nanoseconds, precise enough to tell it from others that near. */
export function moment(time: number, near: number): string {
  const scale: [number, string][] = [
    [1e9, "s"],
    [1e6, "ms"],
    [1e3, "µs"],
    [1, "ns"],
  ];
  if (Math.abs(time) < near / 1000) return "0";
  const [size, unit] = scale.find(([size]) => Math.abs(time) >= size) ?? [1, "ns"];
  const decimals = Math.max(0, Math.ceil(-Math.log10(near / size) - 1e-9));
  return `${(time / size).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals })} ${unit}`;
}

export function bytes(value: number): string {
  return steps(
    value,
    [
      [2 ** 30, "GiB"],
      [2 ** 20, "MiB"],
      [2 ** 10, "KiB"],
      [1, "B"],
    ],
    digits,
  );
}

export function figure(value: Cell, unit: Unit): string {
  if (value === null) return "–";
  if (typeof value === "string") return value;
  return (value < 0 ? "−" : "") + size(Math.abs(value), unit);
}

function size(value: number, unit: Unit): string {
  switch (unit) {
    case "seconds":
      return seconds(value);
    case "bytes":
      return bytes(value);
    case "fraction":
      if (value !== 0 && value < 0.0005) return "<0.1%";
      return `${(value * 100).toFixed(value !== 0 && value < 0.0995 ? 1 : 0)}%`;
    case "ratio":
      if (0 < value && value < 0.095) return `÷${digits(1 / value)}`;
      return `×${value >= 99.95 ? count(value) : value.toFixed(2)}`;
    case "count":
      return count(value);
    default:
      return digits(value);
  }
}

/** A figure at an axis: round ones lose the zeros that figures in a column have. */
export function tick(value: number, unit: Unit): string {
  return figure(value, unit)
    .replace(/(\.\d*?)0+(?=\D|$)/, "$1")
    .replace(/\.(?=\D|$)/, "");
}

export function shape(dims: number[]): string {
  return dims.length ? `[${dims.join(", ")}]` : "scalar";
}

export function plural(value: number, noun: string): string {
  if (value === 1) return `1 ${noun}`;
  return `${count(value)} ${noun.endsWith("x") ? `${noun}es` : `${noun}s`}`;
}

/** How many operators there are, and which are the most frequent. */
export function tally(names: string[]): string {
  const times = new Map<string, number>();
  for (const name of names) times.set(name, (times.get(name) ?? 0) + 1);
  const common = [...times]
    .sort((a, b) => b[1] - a[1])
    .map(([name, n]) => (n > 1 ? `${name} ×${n}` : name));
  const more = common.length > 2 ? ", …" : "";
  return `${plural(names.length, "op")}: ${common.slice(0, 2).join(", ")}${more}`;
}

/** Cut the middle out of a text that is too long. */
/** The first items of a list that is too long, as many as there is room for. */
export function shortenList(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const end = text.lastIndexOf(", ", longest - 3);
  return end > 0 ? `${text.slice(0, end)}, …` : shorten(text, longest);
}

export function shorten(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const head = Math.max(1, (longest - 1) >> 1);
  const tail = longest - 1 - head;
  return `${text.slice(0, head)}…${tail > 0 ? text.slice(-tail) : ""}`;
}
