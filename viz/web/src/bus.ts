// The selection, shared by all views of the page.

import type { Playhead } from "./play/playhead";

export type Kind = "graph" | "timeline";
type Listener = (nodes: readonly number[], origin: object) => void;

/** Views publish their selection here, and are notified of selections in other views. */
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

/** The user's choices in a view, as short texts by name; unchanged ones are left out. */
export type State = Record<string, string>;

export interface Panel {
  element: HTMLElement;
  /** Called whenever the tab becomes visible. */
  reveal?: () => void;
  /** A key that was pressed in the tab, outside text fields. */
  key?: (event: KeyboardEvent) => void;
  /** The state of this view for a link to the page. */
  link?: () => State;
  /** Restore the state of such a link. */
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
