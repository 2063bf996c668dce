// The keys that are commands of the page, independent of the focus.

const OWN: Record<string, readonly string[]> = {
  range: ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"],
  checkbox: [" "],
};

/** Whether a key is free: no text field has the focus, and no control that uses the key. */
export function isForPage(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return false;
  const { target, key } = event;
  if (!(target instanceof HTMLElement)) return true;
  if (target.isContentEditable || target.matches("select, textarea")) return false;
  if (target instanceof HTMLInputElement) {
    const own = OWN[target.type];
    return own !== undefined && !own.includes(key);
  }
  if (target.matches("[role=tab][aria-selected=true]")) return true; // pressed, it would do nothing
  return !((key === "Enter" || key === " ") && target.closest("button, summary, a"));
}
