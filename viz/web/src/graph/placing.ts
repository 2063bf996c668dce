// Places diagrams: small ones at once, large ones in a worker, so that the page goes on answering.

import { type Room, layout } from "./columns";
import { type Diagram, boxWidth } from "./diagram";
import { type Layout, type Route, extent } from "./layout";

const AT_ONCE = 3000; // boxes

/** What a layout needs of a diagram, quick to hand over. */
interface Task {
  number: number;
  room: Room | undefined;
  widths: Float64Array;
  lanes: Int32Array; // -1: none
  roles: Uint8Array; // 1: forward, 2: backward
  sources: Int32Array;
  targets: Int32Array;
  orders: Uint8Array;
  names: [number, string][];
  spans: Diagram["spans"];
}

interface Answer {
  number: number;
  layout: Layout; // without routes
  links: Int32Array;
  flags: Uint8Array; // 1: a curve, 2: far
  starts: Int32Array; // of the points of every route, and their end
  points: Float64Array;
}

type Done = (layout: Layout) => void;

const ROLES = ["", "forward", "backward"];

export class Placing {
  private worker: Worker | null | undefined; // null: there can be none
  private readonly waiting = new Map<number, { diagram: Diagram; room?: Room; done: Done }>();
  private latest = 0;

  /** Place a diagram; `done` is called at once or later, and only for the latest one. */
  place(diagram: Diagram, room: Room | undefined, done: Done): void {
    const number = ++this.latest;
    const worker = diagram.boxes.length > AT_ONCE ? this.started() : null;
    if (!worker) return done(layout(diagram, room));
    this.waiting.clear();
    this.waiting.set(number, { diagram, ...(room && { room }), done });
    const task = packed(number, diagram, room);
    const { widths, lanes, roles, sources, targets, orders } = task;
    worker.postMessage(
      task,
      [widths, lanes, roles, sources, targets, orders].map((column) => column.buffer),
    );
  }

  /** The script of this page, started once more: one file has to do. */
  private started(): Worker | null {
    if (this.worker !== undefined) return this.worker;
    this.worker = null;
    const script = [...document.scripts].find(({ text }) => text.includes(MARK))?.text;
    if (!script || typeof Worker === "undefined") return null;
    try {
      const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
      this.worker = new Worker(url);
    } catch (error) {
      if (!(error instanceof DOMException)) throw error;
      return null; // a frame whose rules forbid workers
    }
    this.worker.onmessage = ({ data }: MessageEvent<Answer>) => {
      this.waiting.get(data.number)?.done(unpacked(data));
      this.waiting.delete(data.number);
    };
    this.worker.onerror = ({ message }) => {
      console.warn(`diagrams are placed without a worker: ${message}`);
      this.worker = null;
      for (const { diagram, room, done } of this.waiting.values()) done(layout(diagram, room));
      this.waiting.clear();
    };
    return this.worker;
  }
}

const MARK = "dpexec places diagrams";

/** What the script does in a worker. */
export function serve(): void {
  self.name = MARK;
  self.onmessage = ({ data }: MessageEvent<Task>) => {
    const answer = answered(data);
    const { links, flags, starts, points } = answer;
    const buffers = [links, flags, starts, points].map((column) => column.buffer);
    (self as unknown as Worker).postMessage(answer, buffers);
  };
}

function packed(number: number, diagram: Diagram, room: Room | undefined): Task {
  const { boxes, links } = diagram;
  return {
    number,
    room,
    widths: Float64Array.from(boxes, boxWidth),
    lanes: Int32Array.from(boxes, ({ lane }) => lane ?? -1),
    roles: Uint8Array.from(boxes, ({ role }) => Math.max(0, ROLES.indexOf(role))),
    sources: Int32Array.from(links, ({ source }) => source),
    targets: Int32Array.from(links, ({ target }) => target),
    orders: Uint8Array.from(links, ({ order }) => Number(order)),
    names: [...diagram.lanes],
    spans: diagram.spans,
  };
}

function answered(task: Task): Answer {
  const { widths, lanes, roles, sources, targets, orders } = task;
  const boxes = Array.from(widths, (width, at) => ({
    label: "",
    detail: "",
    role: ROLES[roles[at] as number] as string,
    lane: (lanes[at] as number) < 0 ? null : (lanes[at] as number),
    count: 1,
    stacked: false,
    folded: false,
    width,
  }));
  const links = Array.from(sources, (source, at) => ({
    source,
    target: targets[at] as number,
    order: orders[at] === 1,
  }));
  const made = layout({ boxes, links, lanes: new Map(task.names), spans: task.spans }, task.room);
  const { routes } = made;
  const starts = new Int32Array(routes.length + 1);
  routes.forEach(({ points }, at) => (starts[at + 1] = (starts[at] as number) + points.length));
  const points = new Float64Array(starts[routes.length] as number);
  routes.forEach((route, at) => points.set(route.points, starts[at]));
  return {
    number: task.number,
    layout: { ...made, routes: [] },
    links: Int32Array.from(routes, ({ link }) => link),
    flags: Uint8Array.from(routes, ({ curve, far }) => Number(curve) + 2 * Number(far)),
    starts,
    points,
  };
}

function unpacked({ layout: made, links, flags, starts, points }: Answer): Layout {
  const routes = Array.from(links, (link, at): Route => {
    const own = Array.from(points.subarray(starts[at], starts[at + 1]));
    const flag = flags[at] as number;
    return { link, points: own, curve: (flag & 1) > 0, far: flag > 1, ...extent(own) };
  });
  return { ...made, routes };
}
