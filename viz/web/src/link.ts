// The state of the page in the fragment of its address: report.html#... opens the same view.

import type { State } from "./bus";

const REST = 150; // milliseconds without a change, then the address follows

/** Whole numbers as text, neighbours as ranges: 1-4.7 */
export function ranges(numbers: Iterable<number>): string {
  const found: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = found.at(-1);
    if (last && number === last[1] + 1) last[1] = number;
    else found.push([number, number]);
  }
  return found.map(([a, b]) => (a === b ? String(a) : `${a}-${b}`)).join(".");
}

const MOST = 1_000_000; // numbers that a range may stand for: an address is not to be trusted

/** Read what `ranges` wrote; what is damaged is left out. */
export function numbers(text: string): number[] {
  const found: number[] = [];
  for (const part of text.split(".")) {
    const [, from, to] = /^(\d+)(?:-(\d+))?$/.exec(part) ?? [];
    if (from === undefined) continue;
    const end = Math.min(Number(to ?? from), Number(from) + MOST - found.length);
    for (let number = Number(from); number <= end; number++) found.push(number);
  }
  return found;
}

/** Numbers as text and back, null if it does not hold that many. */
export function figures(text: string | undefined, count: number): number[] | null {
  const found = (text ?? "").split(",").map((part) => (part === "" ? NaN : Number(part)));
  return found.length === count && found.every(Number.isFinite) ? found : null;
}

export interface PageState {
  page: State; // which tab, theme, selection
  views: Map<number, State>;
}

export function readLink(fragment: string): PageState {
  const found: PageState = { page: {}, views: new Map() };
  for (const [key, value] of new URLSearchParams(fragment.replace(/^#/, ""))) {
    const [, view, name] = /^(\d+)\.(.+)$/.exec(key) ?? [];
    if (view === undefined || name === undefined) found.page[key] = value;
    else {
      const state = found.views.get(Number(view)) ?? {};
      state[name] = value;
      found.views.set(Number(view), state);
    }
  }
  return found;
}

export function writeLink({ page, views }: PageState): string {
  const all = new URLSearchParams(page);
  for (const [view, state] of [...views].sort((a, b) => a[0] - b[0]))
    for (const [name, value] of Object.entries(state)) all.append(`${view}.${name}`, value);
  return all.toString().replace(/%2C/g, ",");
}

/** Keeps the address as the page is; call it whenever something has changed. */
export function addressKeeper(state: () => PageState): () => void {
  if (window !== window.top) return () => {}; // in a notebook, whose address is not ours
  let timer = 0;
  window.addEventListener("hashchange", () => location.reload()); // somebody put a link there
  return () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      const text = writeLink(state());
      if (text !== location.hash.slice(1))
        history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    }, REST);
  };
}
