// Source text behind operators: the user's statement, declarations, machine code; all behind folds.

import type { Listing, Texts } from "./data";
import { type Child, h } from "./dom";
import { plural } from "./format";

/** The user's line, with its text. */
export function userLine(texts: Texts, line: string): Child {
  const text = texts.lines?.[line];
  return [h("code", {}, line), text ? h("pre", { class: "source" }, text) : null];
}

/** Where the type of an operator is declared, with its kernel for all arrays. */
export function declaration(texts: Texts, type: string): Child {
  const number = texts.declarations?.[type];
  return number === undefined ? null : listing(texts, number, `${type} is declared in`);
}

/** The kernels that did the work of an operator, each behind a fold. */
export function kernels(texts: Texts, numbers: number[] | undefined, open = false): Child {
  if (!numbers) return null;
  if (!numbers.length) return h("p", {}, "no kernel: its result is its input");
  return numbers.map((number) => listing(texts, number, "", open));
}

function listing(texts: Texts, number: number, before = "", open = false): Child {
  const found = texts.listings?.[number];
  if (!found) return null;
  const lines = found.source.trimEnd();
  const size = lines ? plural(lines.split("\n").length, "line") : "no source";
  const words = before || WORDS[found.kind];
  return h(
    "details",
    { class: "listing", open },
    h(
      "summary",
      { title: found.name },
      `${words} `,
      h("code", {}, shortName(found)),
      h("span", { class: "more" }, size),
    ),
    found.takes ? h("pre", { class: "takes" }, found.takes) : null,
    h("pre", { class: "source", tabindex: 0, "aria-label": `Source of ${found.name}` }, lines),
  );
}

const WORDS: Record<Listing["kind"], string> = {
  declaration: "NumPy, as declared:",
  "machine code": "machine code of",
  Python: "Python,",
};
const HASHED = /^([a-z]+_[0-9a-f]{6})[0-9a-f]{6,}$/;

/** The last names of a function; generated ones are called after their whole text. */
export function shortName({ name, kind }: Listing): string {
  const parts = name.split(".");
  if (kind === "declaration") return parts.slice(-2).join(".");
  const last = parts[parts.length - 1] ?? name;
  return HASHED.exec(last)?.[1] ?? last;
}
