"""The operators of blocks: which operator of a loop's body a slice is, and in which round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from dpexec.viz.measured.schedule import Schedule, Slice, Step
from dpexec.viz.pages.units import seconds_text


class Body:
    """The operators of a block and of the blocks within it.

    Args:
        operators: As in graph files; those of an inner block follow the operator that runs it.

    Attributes:
        direct: By position of an operator that runs blocks, the positions of those directly in it;
            -1 stands for the whole.
    """

    def __init__(self, operators: Sequence[Mapping[str, Any]]) -> None:
        self.operators = operators
        self.direct: dict[int, list[int]] = {}
        around = [-1]
        for place, inner in enumerate(operators):
            del around[inner["depth"] + 1 :]
            self.direct.setdefault(around[-1], []).append(place)
            around.append(place)

    def match(self, loop: int, pieces: Iterable[Slice]) -> Iterator[tuple[Slice, int, bool]]:
        """Assign the slices of one run to operators; slices of other bodies are left out.

        Args:
            loop: Position of the operator that runs the block; -1 stands for the whole.
            pieces: The slices directly inside of the run, in order of time.

        Yields:
            A slice, the position of its operator, and whether that begins a round. A slice of
            several operators comes once for each of them.
        """
        places = self.direct.get(loop, [])
        names = [self.operators[place]["name"] for place in places]
        at = len(names)
        for piece in pieces:
            for name in piece.event.name.split("+"):
                found = _next(names, name, at)
                begins = found is None
                if found is None:
                    found = _next(names, name, 0)
                if found is not None:
                    yield piece, places[found], begins
                    at = found + 1


class Inside(NamedTuple):
    """The place of a slice in a block.

    Args:
        node: The operator of the graph that runs the block.
        place: Position of its operator in the body of that.
    """

    node: int
    place: int


class Insides:
    """The slices of a step that are operators of blocks.

    Args:
        schedule: The trace.
        step: One of its steps.

    Attributes:
        places: By slice, its place.
        rounds: By operator of the graph that runs blocks: how many rounds it ran.
    """

    def __init__(self, schedule: Schedule, step: Step) -> None:
        self.places: dict[int, Inside] = {}
        self.rounds: dict[int, int] = {}
        bodies = bodies_of(schedule)
        if not bodies:
            return
        self._parts, runs = inner_slices(schedule, step, bodies)
        for run in runs:
            node = run.event.node
            assert node is not None
            self._read(bodies[node], node, run, -1)

    def _read(self, body: Body, node: int, run: Slice, loop: int) -> None:
        for piece, place, begins in body.match(loop, self._parts.get(run.id, ())):
            if begins and loop < 0:
                self.rounds[node] = self.rounds.get(node, 0) + 1
            if piece.id not in self.places:
                self.places[piece.id] = Inside(node, place)
                if place in body.direct:
                    self._read(body, node, piece, place)


def bodies_of(schedule: Schedule) -> dict[int, Body]:
    """Return the bodies of a graph's operators that run blocks."""
    nodes = schedule.facts.nodes if schedule.facts else ()
    return schedule.once(
        ("bodies", 0),
        lambda: {node["id"]: Body(node["body"]) for node in nodes if node.get("body")},
    )


def inner_slices(
    schedule: Schedule, step: Step, bodies: Mapping[int, Any]
) -> tuple[dict[int, list[Slice]], list[Slice]]:
    """Return for a step: by slice, the slices of blocks directly inside it; and runs of bodies."""
    parts: dict[int, list[Slice]] = {}
    runs: list[Slice] = []
    for index in step.slices:
        piece = schedule.by_id[index]
        if piece.parent is not None and "inside" in piece.event.args:
            parts.setdefault(piece.parent, []).append(piece)
        elif piece.event.node in bodies:
            runs.append(piece)
    return parts, runs


def insides_of(schedule: Schedule, step: Step) -> Insides:
    """Return the slices of a step that are operators of blocks; they are found once."""
    return schedule.once(("insides", step.number), lambda: Insides(schedule, step))


def detailed(schedule: Schedule) -> Step:
    """Return the typical step, or if that has no rounds of loops, the last step that has them."""
    bodies = bodies_of(schedule)
    if not bodies or inner_slices(schedule, schedule.typical, bodies)[0]:
        return schedule.typical
    with_rounds = (s for s in reversed(schedule.steps) if inner_slices(schedule, s, bodies)[0])
    return next(with_rounds, schedule.typical)


def rounds_text(schedule: Schedule) -> str:
    """Say which steps recorded the rounds of loops, and how much longer that took; "" if all did.

    Without a recording most loops run as one call of machine code, and so they do in other steps.
    """
    bodies = bodies_of(schedule)
    times: dict[str, tuple[list[float], list[float]]] = {}
    with_rounds: dict[int, None] = {}
    for step in schedule.steps if bodies else ():
        parts, runs = inner_slices(schedule, step, bodies)
        for run in runs:
            sides = times.setdefault(run.event.name, ([], []))
            sides[run.id in parts].append(run.event.duration)
            if run.id in parts:
                with_rounds[step.number] = None
    both = {name: sides for name, sides in times.items() if all(sides)}
    if not both:
        return ""
    name = max(both, key=lambda each: sum(both[each][1]))
    whole, single = map(statistics.median, both[name])
    first, last = min(with_rounds), max(with_rounds)
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    return (
        f"Operators inside of loops and branches are recorded in {steps} alone, since that takes "
        f"Python: there a {name} takes {seconds_text(single)}, and {seconds_text(whole)} in other "
        "steps, as without a recording."
    )


def inner_name(schedule: Schedule, inside: Inside) -> str:
    """Return the name of an operator of a block, with its output and what runs the block."""
    assert schedule.facts is not None
    op = bodies_of(schedule)[inside.node].operators[inside.place]
    made = f" → {op['output']}" if op.get("output") else ""
    return f"{op['name']}{made} in {schedule.facts.by_id[inside.node]['name']}"


def _next(names: Sequence[str], name: str, start: int) -> int | None:
    return next((k for k in range(start, len(names)) if names[k] == name), None)
