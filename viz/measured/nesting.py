"""Nests the events of a thread: operators lie in their tasks."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.trace import Event

TOLERANCE = 2e-9
"""Seconds by which neighbours may overlap, because of clocks and Chrome's microseconds."""

Placed = tuple[int, Event, int, int | None, float]
"""Position in the trace, event, depth, position of what it is part of, and seconds of its own."""


class _Lane:
    """A track that is being filled: its open events, and all events placed so far."""

    def __init__(self) -> None:
        self.open: list[tuple[int, float, Event]] = []  # id and stop
        self.placed: list[tuple[int, Event, int, int | None]] = []
        self.own: dict[int, float] = {}

    def take(self, index: int, event: Event) -> bool:
        """Put an event here, unless it overlaps an event without being part of it."""
        while self.open and self.open[-1][1] <= event.start + TOLERANCE:
            if _is_at_its_end(event, self.open[-1][2]):
                break
            self.open.pop()
        if self.open and event.stop > self.open[-1][1] + TOLERANCE:
            return False
        parent = self.open[-1][0] if self.open else None
        if parent is not None:
            self.own[parent] -= event.duration
        self.own[index] = event.duration
        self.placed.append((index, event, len(self.open), parent))
        self.open.append((index, event.stop, event))
        return True


def _is_at_its_end(event: Event, task: Event) -> bool:
    """Whether an event without duration is the last part of a task that ends with it."""
    return (
        event.stop == event.start
        and task.kind == "task" != event.kind
        and (task.key, task.step) == (event.key, event.step)
        and event.stop <= task.stop + TOLERANCE
    )


def nest(row: Sequence[tuple[int, Event]]) -> list[list[Placed]]:
    """Put the events of a thread on lanes, nested; one that would overlap gets a further lane.

    Args:
        row: Positions in the trace, and events.
    """
    begun: dict[tuple[str, int], float] = {}
    for _, event in row:
        if event.kind == "task":
            place = event.key, event.step
            begun[place] = min(event.start, begun.get(place, event.start))

    def order(item: tuple[int, Event]) -> tuple[float, int, bool, float]:
        """Outer events come first; but before all, what may be the last part of a task."""
        event = item[1]
        if event.kind == "task":
            return event.start, 1, True, -event.stop
        is_long = event.stop > event.start
        if not is_long and begun.get((event.key, event.step), event.start) < event.start:
            return event.start, 0, False, -event.stop
        return event.start, 2, is_long, -event.stop

    lanes = [_Lane()]
    for index, event in sorted(row, key=order):
        if not any(lane.take(index, event) for lane in lanes):
            lanes.append(_Lane())
            lanes[-1].take(index, event)
    return [[(*placed, lane.own[placed[0]]) for placed in lane.placed] for lane in lanes]
