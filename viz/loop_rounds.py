"""What the operators of a loop's body took, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.viz.measured.schedule import Schedule, Slice

_MOST = 200  # rounds of one loop; those that follow are left out


def rounds_of(schedule: Schedule) -> dict[str, list[list[float | None]]]:
    """Return the rounds of every node that runs blocks, in the typical step.

    Args:
        schedule: A trace.

    Returns:
        By id of the node: a list for every round, with seconds by operator of the node's body, None
        for one that did not run. Nodes of which no operator was recorded are left out.
    """
    bodies = {
        node["id"]: node["body"]
        for node in (schedule.facts.nodes if schedule.facts else ())
        if node.get("body")
    }
    if not bodies:
        return {}
    parts: dict[int, list[Slice]] = {node: [] for node in bodies}
    for index in schedule.typical.slices:
        piece = schedule.by_id[index]
        owner = _owner(schedule, piece)
        if owner in parts:
            parts[owner].append(piece)
    found = {str(node): _rounds(bodies[node], pieces) for node, pieces in parts.items() if pieces}
    return {node: rounds for node, rounds in found.items() if rounds}


def _owner(schedule: Schedule, piece: Slice) -> int | None:
    """The node that runs a block of which a slice is an operator."""
    if piece.event.node is not None or "inside" not in piece.event.args:
        return None
    return schedule.node_of(piece)


def _rounds(body: Sequence[dict[str, Any]], pieces: Sequence[Slice]) -> list[list[float | None]]:
    """Slices in order of time, each given to the next operator of its name, from the end anew."""
    names = [inner["name"] for inner in body]
    rounds: list[list[float | None]] = []
    at = len(names)
    for piece in pieces:
        for name in piece.event.name.split("+"):
            place = _next(names, name, at)
            if place is None:
                place = _next(names, name, 0)
                if place is None:
                    continue  # of another body
                if len(rounds) == _MOST:
                    return rounds
                rounds.append([None] * len(names))
            rounds[-1][place] = piece.event.duration
            at = place + 1
    return rounds


def _next(names: Sequence[str], name: str, start: int) -> int | None:
    return next((k for k in range(start, len(names)) if names[k] == name), None)
