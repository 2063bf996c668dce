"""What the operators of a loop's body took, round by round, also of loops inside of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.page_data import RoundsData

_MOST = 1000  # rounds of one loop, of all its runs; those that follow are left out


def rounds_of(schedule: Schedule) -> dict[str, RoundsData]:
    """Return the rounds of everything that runs blocks, in the typical step.

    Args:
        schedule: A trace.

    Returns:
        By the id of a node; of an operator of its body that runs blocks itself, by the node's and
        its position in the body ("7.3"). For every round: seconds by operator directly in the body,
        None for one that did not run; and the round of the loop around it to which it belongs.
        What was not recorded is left out.
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
    """Puts slices to the operators of a body.

    Args:
        key: Of the node.
        body: Its operators; those of blocks inside follow the one that runs them.
        parts: By slice, those directly in it, in order of time.
        made: Takes what is found.
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
            outer: The round in which it ran of the loop around it.
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
