// What the mouse does on the timeline: zoom, move, jump in the overview, select an area.

import { onDrag, wheelFactor, wheelIsOurs } from "../surface";
import { OVERVIEW } from "./overview";
import { GUTTER, type Picture, RULER, top } from "./paint";

export interface Point {
  x: number;
  y: number;
}

export interface PointerAnswers {
  moved: () => void; // the time in view is another
  scroll: (y: number) => void;
  click: (at: Point) => void;
  open: () => void; // double click
  mark: (from: Point, to: Point, everywhere: boolean) => void; // an area grows
  marked: () => void;
  hover: (at: Point | null) => void;
}

/** What a drag does: move the view, move in the overview, select an area or a span of time. */
type Drag = "move" | "overview" | "area" | "span";

export function timeAt({ window, width }: Picture, x: number): number {
  return window.from + ((x - GUTTER) / (width - GUTTER)) * window.span;
}

/** The slice at a point, -1 for none; one that is thin, up to 3 pixels beside it. */
export function sliceAt(picture: Picture, { x, y }: Point): number {
  const isPinned = y < RULER + picture.tracks.pinnedHeight;
  const row = picture.tracks.rows.find((row) => {
    const from = top(picture, row);
    return row.bar.pinned === isPinned && y >= Math.max(from, RULER) && y < from + row.height;
  });
  if (!row || x < GUTTER) return -1;
  const { model, window, width } = picture;
  return model.at(row.slices, timeAt(picture, x), (3 / width) * window.span);
}

export function onPointer(host: HTMLElement, picture: Picture, answers: PointerAnswers): void {
  const { window } = picture;
  let drag: Drag = "move";
  let pressed: Point = { x: 0, y: 0 };
  const local = (event: MouseEvent): Point => {
    const box = host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const jump = ({ x }: Point): void => {
    const middle = picture.overview.time((x - GUTTER) / (picture.width - GUTTER));
    window.show(middle - window.span / 2, middle + window.span / 2);
    answers.moved();
  };
  host.addEventListener(
    "wheel",
    (event) => {
      if (!wheelIsOurs(event, host)) return;
      event.preventDefault();
      const sideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
      const by = event.deltaX + (event.shiftKey ? event.deltaY : 0);
      if (sideways) window.pan(by / picture.width);
      else window.zoom(wheelFactor(event), timeAt(picture, local(event).x));
      answers.moved();
    },
    { passive: false },
  );
  host.addEventListener("pointerdown", (event) => {
    pressed = local(event);
    if (pressed.y < OVERVIEW) drag = "overview";
    else if (pressed.y < RULER) drag = "span";
    else drag = event.shiftKey ? "area" : "move";
  });
  onDrag(
    host,
    (dx, dy, event) => {
      answers.hover(null);
      if (drag === "overview") return jump(local(event));
      if (drag !== "move") return answers.mark(pressed, local(event), drag === "span");
      window.pan(-dx / (picture.width - GUTTER));
      answers.scroll(picture.scroll - dy);
      answers.moved();
    },
    (event) => {
      host.focus({ preventScroll: true });
      if (drag === "overview") jump(local(event));
      else answers.click(local(event));
    },
    () => (drag === "area" || drag === "span") && answers.marked(),
  );
  host.addEventListener("dblclick", answers.open);
  host.addEventListener("pointermove", (event) => event.buttons || answers.hover(local(event)));
  host.addEventListener("pointerleave", () => answers.hover(null));
}
