"""The time of the operators in a loop's body, round by round, including inner loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpexec.viz.measured.bodies import Body, bodies_of, detailed, inner_slices
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.pages.page_data import RoundsData

_MOST = 1000  # rounds of one loop over all its runs; later ones are left out


def rounds_of(schedule: Schedule) -> dict[str, RoundsData]:
    """Return the rounds of all operators that run blocks.

    They are those of the typical step, or of the last one whose rounds were recorded.

    Args:
        schedule: A trace.

    Returns:
        The rounds by the id of the node ("7"); for an operator in its body that runs blocks itself,
        by the node's id and the position in the body ("7.3"). Each round has the seconds of every
        operator directly in the body, None for one that did not run, and the number of the
        surrounding loop's round. Loops that were not recorded are left out.
    """
    bodies = bodies_of(schedule)
    if not bodies:
        return {}
    parts, runs = inner_slices(schedule, detailed(schedule), bodies)
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
        body: Its operators.
        parts: By slice, the slices directly inside it, in order of time.
        made: Receives the rounds.
    """

    def __init__(
        self,
        key: str,
        body: Body,
        parts: Mapping[int, Sequence[Slice]],
        made: dict[str, RoundsData],
    ) -> None:
        self.key, self.body, self.parts, self.made = key, body, parts, made

    def read(self, run: Slice, loop: int, outer: int) -> None:
        """Take one run of a loop.

        Args:
            run: Its slice.
            loop: Position of the loop in the body; -1: the node itself.
            outer: The round of the surrounding loop in which it ran.
        """
        places = self.body.direct[loop]
        key = self.key if loop < 0 else f"{self.key}.{loop}"
        for piece, place, begins in self.body.match(loop, self.parts.get(run.id, ())):
            rounds = self.made.setdefault(key, {"of": [], "seconds": []})
            if begins:
                if len(rounds["of"]) == _MOST:
                    return
                rounds["of"].append(outer)
                rounds["seconds"].append([None] * len(places))
            rounds["seconds"][-1][places.index(place)] = piece.event.duration
            if place in self.body.direct:
                self.read(piece, place, len(rounds["of"]) - 1)
