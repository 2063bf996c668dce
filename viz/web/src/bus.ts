// What is selected, for all views of the page.

import type { Playhead } from "./play/playhead";

export type Kind = "graph" | "timeline";
type Listener = (nodes: readonly number[], origin: object) => void;

/** Views tell here what was selected in them and hear what was selected elsewhere. */
export class Bus {
  nodes: readonly number[] = [];
  private listeners: Listener[] = [];
  private stepListeners: ((number: number) => void)[] = [];
  private openers = new Map<Kind, () => void>();

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  select(nodes: readonly number[], origin: object): void {
    this.nodes = nodes;
    for (const listener of this.listeners) listener(nodes, origin);
  }

  /** Go to the timeline, and show a step there. */
  openStep(number: number): void {
    this.openers.get("timeline")?.();
    for (const listener of this.stepListeners) listener(number);
  }

  onStep(listener: (number: number) => void): void {
    this.stepListeners.push(listener);
  }

  /** Register how the tab with this kind of view is opened. */
  offer(kind: Kind, open: () => void): void {
    if (!this.openers.has(kind)) this.openers.set(kind, open);
  }

  has(kind: Kind): boolean {
    return this.openers.has(kind);
  }

  /** Select nodes and go to the view that shows them. */
  open(kind: Kind, nodes: readonly number[], origin: object): void {
    this.openers.get(kind)?.(); // first, so that a view which was never shown exists
    this.select(nodes, origin);
  }
}

/** What somebody chose in a view, as short texts by name; what is as it was at first is left out. */
export type State = Record<string, string>;

export interface Panel {
  element: HTMLElement;
  /** Called whenever the tab becomes visible. */
  reveal?: () => void;
  /** A key that was pressed anywhere in the tab but where people type. */
  key?: (event: KeyboardEvent) => void;
  /** What a link to the page has to say of this view. */
  link?: () => State;
  /** Show what such a link says. */
  restore?: (state: State) => void;
}

export interface Context {
  bus: Bus;
  roles: Record<string, string>;
  /** The state of a view has changed. */
  changed: () => void;
  /** The moment that all views show; null where there is nothing to play. */
  playhead: Playhead | null;
}
