// A search field over a list that makes only the rows in view: it takes 100,000 entries, and it is
// the drawing in words for those who do not see it.

import { count } from "./format";
import { h, uniqueId } from "./dom";

const ROW = 40; // pixels, as in the style sheet

export interface Entry {
  title: string;
  detail: string;
  sign: string;
  role: string;
}

export interface Source {
  noun: string; // "operator"
  hint: string; // what can be searched
  total: () => number;
  text: (entry: number) => string; // in lower case
  entry: (entry: number) => Entry;
  choose: (entry: number) => void;
  /** Called with the hits of a search, null when the field is empty. */
  found?: (hits: Set<number> | null) => void;
}

/** Entries whose text has all words of the query, or matches /a regular expression/. */
export function search(
  query: string,
  total: number,
  text: (entry: number) => string,
): number[] | string {
  const hits: number[] = [];
  const pattern = /^\/(.+?)\/?$/.exec(query.trim());
  if (pattern) {
    let expression: RegExp;
    try {
      expression = new RegExp(pattern[1] as string, "im");
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      const known = "Invalid regular expression: "; // said by some browsers, not by all
      return why.startsWith(known) ? why : known + why;
    }
    for (let entry = 0; entry < total; entry++) if (expression.test(text(entry))) hits.push(entry);
    return hits;
  }
  const words = terms(query);
  for (let entry = 0; entry < total; entry++) {
    const content = text(entry);
    if (words.every((word) => content.includes(word))) hits.push(entry);
  }
  return hits;
}

/** Words of a query; a shape in brackets or a "quoted text" is one word. */
export function terms(query: string): string[] {
  const found = query.toLowerCase().match(/"[^"]*"?|\[[^\]]*\]?|device \d+|\S+/g) ?? [];
  return found
    .map((word) =>
      word.replace(/"/g, "").replace(
        /^\[(.*)\]$/,
        (_, dims: string) =>
          `[${dims
            .split(/[\s,]+/)
            .filter(Boolean)
            .join(", ")}]`,
      ),
    )
    .filter(Boolean);
}

export class SearchList {
  readonly element: HTMLElement;
  readonly field: HTMLInputElement;
  private readonly status = h("p", { class: "status", role: "status" });
  private readonly list: HTMLElement;
  private readonly spacer = h("div", { class: "spacer", role: "presentation" });
  private hits: number[] | null = null;
  private current = -1;
  private readonly prefix = uniqueId("row");

  constructor(private readonly source: Source) {
    this.list = h(
      "div",
      {
        class: "rows",
        role: "listbox",
        tabindex: 0,
        "aria-label": `${source.noun}s`,
        onscroll: () => this.render(),
        onkeydown: (event: KeyboardEvent) => this.key(event),
        onclick: (event: MouseEvent) => this.click(event),
      },
      this.spacer,
    );
    this.field = h("input", {
      type: "search",
      placeholder: `Search ${source.noun}s`,
      "aria-label": `Search ${source.noun}s: ${source.hint}`,
      title: source.hint,
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.search(),
      onkeydown: (event: KeyboardEvent) => this.fieldKey(event),
    });
    this.element = h("div", { class: "search" }, this.field, this.status, this.list);
    new ResizeObserver(() => this.render()).observe(this.list);
    this.refresh();
  }

  /** Show the list again after its source has changed. */
  refresh(): void {
    if (this.field.value.trim()) this.search();
    else this.renew();
  }

  /** Mark an entry that was chosen elsewhere. */
  mark(entry: number): void {
    this.current = this.hits ? this.hits.indexOf(entry) : entry;
    this.keepInView();
    this.render();
  }

  private length(): number {
    return this.hits?.length ?? this.source.total();
  }

  private entryAt(row: number): number {
    return this.hits ? (this.hits[row] ?? -1) : row;
  }

  private search(): void {
    const query = this.field.value;
    this.current = -1;
    this.list.scrollTop = 0;
    if (!query.trim()) {
      this.hits = null;
      this.source.found?.(null);
      this.renew();
      return;
    }
    const result = search(query, this.source.total(), this.source.text);
    this.field.setAttribute("aria-invalid", String(typeof result === "string"));
    this.hits = typeof result === "string" ? [] : result;
    this.source.found?.(new Set(this.hits));
    this.renew(typeof result === "string" ? result : undefined);
  }

  private renew(problem?: string): void {
    const total = count(this.source.total());
    const noun = `${this.source.noun}${this.source.total() === 1 ? "" : "s"}`;
    this.status.textContent =
      problem ??
      (this.hits ? `${count(this.hits.length)} of ${total} ${noun}` : `${total} ${noun}`);
    this.spacer.style.height = `${this.length() * ROW}px`;
    this.render();
  }

  private render(): void {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 2);
    const last = Math.min(
      this.length(),
      first + Math.ceil((this.list.clientHeight || 400) / ROW) + 4,
    );
    const rows = [];
    for (let row = first; row < last; row++) rows.push(this.row(row));
    this.spacer.replaceChildren(...rows);
    if (this.current >= first && this.current < last) {
      this.list.setAttribute("aria-activedescendant", `${this.prefix}-${this.current}`);
    } else this.list.removeAttribute("aria-activedescendant");
  }

  private row(row: number): HTMLElement {
    const entry = this.source.entry(this.entryAt(row));
    return h(
      "div",
      {
        class: "row",
        role: "option",
        id: `${this.prefix}-${row}`,
        "data-row": row,
        "aria-selected": String(row === this.current),
        "aria-posinset": row + 1,
        "aria-setsize": this.length(),
        style: `top:${row * ROW}px`,
      },
      h(
        "span",
        { class: "sign", "aria-hidden": "true", style: `color:var(--${entry.role}-line)` },
        entry.sign,
      ),
      h("span", { class: "name" }, entry.title),
      h("span", { class: "more" }, entry.detail),
    );
  }

  private click(event: MouseEvent): void {
    const row = (event.target as HTMLElement).closest<HTMLElement>("[data-row]")?.dataset["row"];
    if (row !== undefined) this.go(Number(row), true);
  }

  private go(row: number, choose: boolean): void {
    this.current = Math.max(0, Math.min(this.length() - 1, row));
    this.keepInView();
    this.render();
    const entry = this.entryAt(this.current);
    if (choose && entry >= 0) this.source.choose(entry);
  }

  private keepInView(): void {
    if (this.current < 0) return;
    const top = this.current * ROW;
    const { scrollTop, clientHeight } = this.list;
    if (top < scrollTop) this.list.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.list.scrollTop = top + ROW - clientHeight;
  }

  private fieldKey(event: KeyboardEvent): void {
    event.stopPropagation(); // letters are text here, not commands
    if (event.key === "Enter" && this.length()) {
      this.go(this.hits && this.current >= 0 ? (this.current + 1) % this.length() : 0, true);
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      this.list.focus();
      this.go(Math.max(0, this.current), false);
    } else if (event.key === "Escape") {
      this.field.value = "";
      this.search();
    }
  }

  private key(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const moves: Record<string, number> = {
      ArrowDown: this.current + 1,
      ArrowUp: this.current - 1,
      PageDown: this.current + page,
      PageUp: this.current - page,
      Home: 0,
      End: this.length() - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) this.go(target, false);
    else if (event.key === "Enter" || event.key === " ") this.go(this.current, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
