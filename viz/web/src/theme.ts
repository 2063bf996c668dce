// Light and dark; canvases need the colours as values.

const listeners: (() => void)[] = [];
let cache = new Map<string, string>();

export function isDark(): boolean {
  return document.documentElement.dataset["theme"] === "dark";
}

export function setDark(dark: boolean): void {
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  cache = new Map();
  for (const listener of listeners) listener();
}

/** Take the theme of the system, now and whenever it changes. */
export function followSystem(): void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  setDark(system.matches);
  system.addEventListener("change", () => setDark(system.matches));
}

export function onTheme(listener: () => void): void {
  listeners.push(listener);
}

/** Value of a custom property, e.g. colour("text"). */
export function colour(name: string): string {
  let value = cache.get(name);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    cache.set(name, value);
  }
  return value;
}

/** Signs that stand for the roles where colour alone would have to. */
export const SIGNS: Record<string, string> = {
  forward: "▸",
  backward: "◂",
  collective: "⇄",
  optimize: "✚",
  lr_sched: "η",
  feed: "↧",
  fetch: "↥",
  failure: "✗",
  transfer: "→",
  task: "▭",
};

export const ROLE_ORDER = [
  "forward",
  "backward",
  "collective",
  "optimize",
  "lr_sched",
  "feed",
  "fetch",
  "failure",
  "transfer",
];

export function roleLine(role: string): string {
  return colour(`${role}-line`) || colour("faint");
}

export function roleFill(role: string): string {
  return colour(`${role}-fill`) || colour("lane");
}

/** A colour of the heat scale for 0..1; pale to strong in light, dim to bright in dark. */
export function heat(value: number): string {
  const t = Math.max(0, Math.min(1, value));
  return isDark()
    ? `hsl(${280 + 95 * t} ${35 + 45 * t}% ${18 + 22 * t}%)`
    : `hsl(${50 - 35 * t} 92% ${95 - 33 * t}%)`;
}
