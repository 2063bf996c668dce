// A few lines in place of a framework.

type Value = string | number | boolean | null | undefined | ((event: never) => void);
export type Child = Node | string | null | undefined | Child[];

/** Make an element: `on...` are listeners, everything else attributes (false and null: none). */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, Value> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      element.addEventListener(name.slice(2), value as EventListener);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  append(element, children);
  return element;
}

function append(parent: Node, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) append(parent, child);
    else if (child !== null && child !== undefined) {
      parent.appendChild(typeof child === "string" ? document.createTextNode(child) : child);
    }
  }
}

/** What `replaceChildren` takes, of children as `h` takes them. */
export function children(...given: Child[]): (Node | string)[] {
  return given
    .flat(Infinity as 10)
    .filter((child): child is Node | string => child !== null && child !== undefined);
}

/** Make an SVG element. */
export function s(
  tag: string,
  attributes: Record<string, string | number>,
  ...children: (Node | string)[]
): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

let counter = 0;

/** A new id; a page may hold several views of a kind. */
export function uniqueId(prefix: string): string {
  counter += 1;
  return `${prefix}-${counter}`;
}

/** Offer a text as a file. */
export function download(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** A labelled select; `change` gets the chosen value. */
export function choice(
  label: string,
  options: [string, string][],
  value: string,
  change: (value: string) => void,
): { element: HTMLElement; select: HTMLSelectElement } {
  const select = h(
    "select",
    { onchange: () => change(select.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return { element: h("label", { class: "choice" }, `${label} `, select), select };
}

/** A labelled check box. */
export function checkbox(
  label: string,
  value: boolean,
  change: (value: boolean) => void,
): { element: HTMLElement; input: HTMLInputElement } {
  const input = h("input", { type: "checkbox", onchange: () => change(input.checked) });
  input.checked = value;
  return { element: h("label", { class: "choice" }, input, ` ${label}`), input };
}
