// A table that sorts, filters and downloads.

import type { Context, Panel, State } from "./bus";
import type { Cell, TableData } from "./data";
import { download, h } from "./dom";
import { count, figure } from "./format";
import { figures } from "./link";
import { search } from "./list";

const PAGE = 400; // rows that are made at once

export class TableView implements Panel {
  readonly element: HTMLElement;
  private readonly body = h("tbody");
  private readonly status = h("p", { class: "summary", role: "status" });
  private readonly heads: HTMLTableCellElement[];
  private readonly filter: HTMLInputElement;
  private readonly texts: string[];
  private readonly most: number[];
  private order: number[] = [];
  private column: number;
  private down: boolean;
  private limit = PAGE;

  constructor(
    private readonly data: TableData,
    private readonly context: Context,
  ) {
    this.texts = data.rows.map((row) =>
      row
        .map((cell, at) =>
          cell === null ? "" : typeof cell === "string" ? cell : `${cell} ${this.write(cell, at)}`,
        )
        .join("\n")
        .toLowerCase(),
    );
    this.most = data.columns.map((_, at) =>
      data.rows.reduce(
        (most, row) =>
          Math.max(most, typeof row[at] === "number" ? Math.abs(row[at] as number) : 0),
        0,
      ),
    );
    [this.column, this.down] = data.sort ? [data.sort[0], data.sort[1] === "down"] : [-1, false];
    this.heads = data.columns.map((column, at) =>
      h(
        "th",
        { scope: "col", class: column.unit === "text" ? "" : "number" },
        h(
          "button",
          { onclick: () => this.sortBy(at) },
          column.label,
          h("span", { class: "arrow", "aria-hidden": "true" }),
        ),
      ),
    );
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter rows",
      "aria-label": "Filter rows: words or /regular expression/",
      oninput: () => this.render(true),
    });
    this.element = this.build();
    this.render(true);
  }

  link(): State {
    const found: State = this.filter.value ? { find: this.filter.value } : {};
    const { sort } = this.data;
    if (this.column !== (sort?.[0] ?? -1) || this.down !== (sort?.[1] === "down"))
      found["sort"] = `${this.column},${Number(this.down)}`;
    return found;
  }

  restore(state: State): void {
    const [column, down] = figures(state["sort"], 2) ?? [];
    if (column !== undefined && this.data.columns[column])
      [this.column, this.down] = [column, !!down];
    this.filter.value = state["find"] ?? "";
    this.render(true);
  }

  key(event: KeyboardEvent): void {
    if (event.key !== "/") return;
    event.preventDefault();
    this.filter.focus();
  }

  private build(): HTMLElement {
    const { notes, title, totals } = this.data;
    return h(
      "div",
      { class: "sheet" },
      h(
        "div",
        { class: "tools" },
        this.filter,
        this.status,
        h("button", { onclick: () => this.csv() }, "Download CSV"),
      ),
      notes.map((note) => h("p", { class: "note" }, note)),
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
        h(
          "table",
          {},
          h("caption", { class: "unseen" }, title),
          h("thead", {}, h("tr", {}, this.heads)),
          this.body,
          totals
            ? h(
                "tfoot",
                {},
                h(
                  "tr",
                  {},
                  totals.map((cell, at) => this.cell(cell, at, false)),
                ),
              )
            : null,
        ),
      ),
    );
  }

  private write(cell: Cell, column: number): string {
    return figure(cell, this.data.columns[column]?.unit ?? "text");
  }

  private sortBy(column: number): void {
    const text = this.data.columns[column]?.unit === "text";
    this.down = this.column === column ? !this.down : !text; // the largest figure first
    this.column = column;
    this.render(true);
  }

  private sorted(): number[] {
    const found = search(this.filter.value, this.data.rows.length, (row) => this.texts[row] ?? "");
    this.filter.setAttribute("aria-invalid", String(typeof found === "string"));
    if (typeof found === "string") return [];
    if (this.column < 0) return found;
    const value = (row: number): Cell => this.data.rows[row]?.[this.column] ?? null;
    const sign = this.down ? -1 : 1;
    return found.sort((a, b) => {
      const [left, right] = [value(a), value(b)];
      if (left === null || right === null) return Number(left === null) - Number(right === null);
      if (typeof left === "number" && typeof right === "number")
        return sign * (left - right) || a - b;
      return sign * String(left).localeCompare(String(right), "en", { numeric: true }) || a - b;
    });
  }

  private render(again: boolean): void {
    if (again) {
      this.order = this.sorted();
      this.limit = PAGE;
    }
    this.heads.forEach((head, at) => {
      const direction = at !== this.column ? "none" : this.down ? "descending" : "ascending";
      head.setAttribute("aria-sort", direction);
      const arrow = head.querySelector(".arrow");
      if (arrow) arrow.textContent = at !== this.column ? "" : this.down ? " ▼" : " ▲";
    });
    const rows = this.order.slice(0, this.limit).map((row) => this.row(row));
    if (this.order.length > this.limit) {
      const rest = count(this.order.length - this.limit);
      const more = h(
        "button",
        {
          onclick: () => {
            this.limit += 10 * PAGE;
            this.render(false);
          },
        },
        `Show ${rest} more rows`,
      );
      rows.push(h("tr", {}, h("td", { colspan: this.data.columns.length }, more)));
    }
    this.body.replaceChildren(...rows);
    this.context.changed();
    this.status.textContent = `${count(this.order.length)} of ${count(this.data.rows.length)} rows`;
  }

  private row(number: number): HTMLTableRowElement {
    const nodes = this.data.nodes?.[number] ?? [];
    const { bus } = this.context;
    const linked = nodes.length > 0 && bus.has("graph");
    return h(
      "tr",
      {},
      this.data.rows[number]?.map((cell, at) => {
        const made = this.cell(cell, at, true);
        if (at || !linked) return made;
        made.replaceChildren(
          h(
            "button",
            {
              class: "link",
              title: "Show in graph",
              onclick: () => bus.open("graph", nodes, this),
            },
            this.write(cell, at),
          ),
        );
        return made;
      }),
    );
  }

  private cell(value: Cell, column: number, bar: boolean): HTMLTableCellElement {
    const { unit } = this.data.columns[column] ?? { unit: "text" };
    const cell = h("td", { class: unit === "text" ? "" : "number" }, this.write(value, column));
    const most = this.most[column] ?? 0;
    if (bar && this.data.bars?.includes(column) && typeof value === "number" && most > 0) {
      cell.classList.add("bar");
      cell.style.setProperty("--share", `${(100 * Math.abs(value)) / most}%`);
    }
    return cell;
  }

  private csv(): void {
    const quote = (cell: Cell): string => {
      const text = cell === null ? "" : String(cell);
      return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
    };
    const head = this.data.columns.map(({ label, unit }) =>
      quote(unit === "seconds" || unit === "bytes" ? `${label} (${unit})` : label),
    );
    const lines = [head, ...this.order.map((row) => (this.data.rows[row] ?? []).map(quote))];
    download(
      this.data.file ?? "table.csv",
      `${lines.map((line) => line.join(",")).join("\n")}\n`,
      "text/csv",
    );
  }
}
