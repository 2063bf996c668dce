"""The time of the operators in a loop's body, round by round, including inner loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.page_data import RoundsData

_MOST = 1000  # rounds of one loop over all its runs; later ones are left out


def rounds_of(schedule: Schedule) -> dict[str, RoundsData]:
    """Return the rounds of all operators that run blocks, in the typical step.

    Args:
        schedule: A trace.

    Returns:
        The rounds by the id of the node ("7"); for an operator in its body that runs blocks itself,
        by the node's id and the position in the body ("7.3"). Each round has the seconds of every
        operator directly in the body, None for one that did not run, and the number of the
        surrounding loop's round. Loops that were not recorded are left out.
    """
    bodies = {
        node["id"]: node["body"]
        for node in (schedule.facts.nodes if schedule.facts else ())
        if node.get("body")
    }
    if not bodies:
        return {}
    parts: dict[int, list[Slice]] = {}
    runs: list[Slice] = []
    for index in schedule.typical.slices:
        piece = schedule.by_id[index]
        if piece.parent is not None and "inside" in piece.event.args:
            parts.setdefault(piece.parent, []).append(piece)
        elif piece.event.node in bodies:
            runs.append(piece)
    made: dict[str, RoundsData] = {}
    for run in runs:
        node = run.event.node
        assert node is not None
        reader = _Reader(str(node), bodies[node], parts, made)
        reader.read(run, -1, 0)
    return made


class _Reader:
    """Assigns slices to the operators of a body.

    Args:
        key: Key of the node.
        body: Its operators; those of an inner block follow the operator that runs it.
        parts: By slice, the slices directly inside it, in order of time.
        made: Receives the rounds.
    """

    def __init__(
        self,
        key: str,
        body: Sequence[Mapping[str, Any]],
        parts: Mapping[int, Sequence[Slice]],
        made: dict[str, RoundsData],
    ) -> None:
        self.key, self.body, self.parts, self.made = key, body, parts, made
        depths = [inner["depth"] for inner in body]
        self.direct: dict[int, list[int]] = {}  # by operator that runs blocks; -1: the node
        around = [-1]
        for place, depth in enumerate(depths):
            del around[depth + 1 :]
            self.direct.setdefault(around[-1], []).append(place)
            around.append(place)

    def read(self, run: Slice, loop: int, outer: int) -> None:
        """Take one run of a loop.

        Args:
            run: Its slice.
            loop: Position of the loop in the body; -1: the node itself.
            outer: The round of the surrounding loop in which it ran.
        """
        places = self.direct[loop]
        names = [self.body[place]["name"] for place in places]
        key = self.key if loop < 0 else f"{self.key}.{loop}"
        at = len(names)
        for piece in self.parts.get(run.id, ()):
            for name in piece.event.name.split("+"):
                found = _next(names, name, at)
                if found is None:
                    found = _next(names, name, 0)
                    if found is None:
                        continue  # of another body
                    rounds = self.made.setdefault(key, {"of": [], "seconds": []})
                    if len(rounds["of"]) == _MOST:
                        return
                    rounds["of"].append(outer)
                    rounds["seconds"].append([None] * len(names))
                rounds = self.made[key]
                rounds["seconds"][-1][found] = piece.event.duration
                at = found + 1
                if places[found] in self.direct:
                    self.read(piece, places[found], len(rounds["of"]) - 1)


def _next(names: Sequence[str], name: str, start: int) -> int | None:
    return next((k for k in range(start, len(names)) if names[k] == name), None)
