"""Estimates how much shorter steps would be if something were faster, by replaying recorded steps.

Faster work has no effect unless it is on the critical path. On the path, it has an effect until
another path becomes the longest one. Replays account for this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from dpexec.viz.measured.activities import Activities, activities_of
from dpexec.viz.measured.critical_path import critical_path
from dpexec.viz.measured.grouping import BETWEEN, By, namer, operator_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule, Step

_STEPS = 9
_SLICES = 20_000
"""The most steps, and slices, that are replayed; the typical step is always replayed."""

_REPLAYED = 128
"""The number of replayed groups, those with most time on the critical path, or for whose Python
others wait. The effect of the other groups is at most that time, which is short."""

_MORE = 1.1
"""Savings by more than so many times the time on the path come from elsewhere, too."""


@dataclass(frozen=True)
class Effect:
    """The saving per step if something were faster; medians over the replayed steps.

    Args:
        name: Name of the type of operator, operator, layer or role, on all devices together.
        by: Which of these it is.
        kind: Kind of its events: "op", "collective", "task" for time outside operators, ...
        time: Its seconds in a step, on all devices together.
        path: Its seconds on the critical path.
        half: Seconds that a step would be shorter if it were twice as fast.
        none: Seconds that a step would be shorter if it took no time.
        nodes: The operators of the graph.
        ends: The least and the largest `half` of the replayed steps.
    """

    name: str
    by: By
    kind: str
    time: float
    path: float
    half: float
    none: float
    nodes: tuple[int, ...]
    ends: tuple[float, float] = (0.0, 0.0)

    @property
    def frees_threads(self) -> bool:
        """Whether it saves more than its time on the path: other threads wait for its Python."""
        return self.none > _MORE * self.path


_Row = tuple[float, float, float, float]
"""Seconds in a step: time, time on the critical path, saving at half the time, and at none."""


class WhatIf:
    """Recorded steps, ready to be replayed with other times.

    Args:
        schedule: The trace.

    Attributes:
        replays: The replayed steps.
        seconds: Seconds of a step, the median of the replayed ones.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.replays = [Replay(activities_of(schedule, step)) for step in _sample(schedule)]
        self._steps = [replay.activities.runs.step for replay in self.replays]
        self.seconds = median(step.seconds for step in self._steps)
        self._groups: dict[By, list[dict[Hashable, list[int]]]] = {}

    @property
    def steps(self) -> list[Activities]:
        """The activities of the replayed steps."""
        return [replay.activities for replay in self.replays]

    def saved(self, change: Callable[[Replay], float]) -> float:
        """Return the share of a step that a change saves, the median over the steps.

        Args:
            change: Function of a replay; returns the seconds of the changed step.
        """
        shares = (
            1 - change(replay) / step.seconds
            for replay, step in zip(self.replays, self._steps, strict=True)
            if step.seconds
        )
        return max(0.0, median([*shares] or [0.0]))

    def step_if(self, by: By, name: str, faster: float) -> float:
        """Return the seconds of a step in which something is faster.

        Args:
            by: The kind of group.
            name: Its name, as in `effects`.
            faster: How many times as fast; below 1 is slower, infinity takes no time at all.

        Raises:
            ValueError: There is no such group, or `faster` is not above 0.
        """
        if not faster > 0:
            raise ValueError(f"faster must be above 0, not {faster}")
        groups = self._members(by)
        found = [
            [at for key in group if _name(key) == name for at in group[key]] for group in groups
        ]
        if not any(found):
            known = sorted({_name(key) for group in groups for key in group})
            raise ValueError(f"no {by} {name!r} in the trace; there are {', '.join(known)}")
        return median(
            replay.each([members], 1 / faster)[0]
            for replay, members in zip(self.replays, found, strict=True)
        )

    def effects(self, by: By) -> tuple[Effect, ...]:
        """Return the effects of all types of operators, operators, layers or roles, largest first.

        Raises:
            ValueError: Layers are asked for, and the trace has no graph.
        """
        rows: dict[Hashable, list[_Row]] = {}
        nodes: dict[Hashable, dict[int, None]] = {}
        kinds: dict[Hashable, str] = {}
        for replay, groups in zip(self.replays, self._members(by), strict=True):
            for key, row in _effects(replay, groups, self.schedule):
                rows.setdefault(key, []).append(row)
            for key, members in groups.items():
                pieces = [replay.activities.all[at].piece for at in members]
                found = (node for piece in pieces for node in self.schedule.nodes_of(piece))
                nodes.setdefault(key, {}).update(dict.fromkeys(found))
                kinds.setdefault(key, pieces[0].event.kind)
        measured = {key: self._medians(table) for key, table in rows.items()}
        effects = [
            Effect(_name(key), by, kinds[key], *medians, tuple(nodes[key]), ends)
            for key, (medians, ends) in measured.items()
        ]
        return tuple(sorted(effects, key=lambda effect: (-effect.half, -effect.path, -effect.time)))

    def _medians(self, table: Sequence[_Row]) -> tuple[_Row, tuple[float, float]]:
        """The median of every column, and the range of the savings at half the time.

        A step without a row counts as zeros.
        """
        rows = [*table, *[(0.0, 0.0, 0.0, 0.0)] * (len(self.replays) - len(table))]
        columns = [*zip(*rows, strict=True)]
        time, path, half, none = map(median, columns)
        return (time, path, half, none), (min(columns[2]), max(columns[2]))

    def _members(self, by: By) -> list[dict[Hashable, list[int]]]:
        """By step: the positions of the activities of every group."""
        if by not in self._groups:
            self._groups[by] = [self._grouped(replay.activities, by) for replay in self.replays]
        return self._groups[by]

    def _grouped(self, activities: Activities, by: By) -> dict[Hashable, list[int]]:
        name_of = namer(self.schedule, by)
        keys: dict[int, Hashable] = {}
        found: dict[Hashable, list[int]] = {}
        for at, one in enumerate(activities.all):
            piece = one.piece
            if one.waits_for is not None:  # no operator's work
                if by == "type":
                    found.setdefault((f"waiting for {one.waits_for}", None), []).append(at)
                continue
            if piece.id not in keys:
                name = name_of(piece)[0]
                one_of = by == "node" and name != BETWEEN
                keys[piece.id] = name, operator_of(self.schedule, piece) if one_of else None
            found.setdefault(keys[piece.id], []).append(at)
        return found


def _name(key: Hashable) -> str:
    assert isinstance(key, tuple)
    return str(key[0])


def _effects(
    replay: Replay, groups: Mapping[Hashable, list[int]], schedule: Schedule
) -> Iterator[tuple[Hashable, _Row]]:
    """For each group: time, time on the path, and the savings at half of the time and at none."""
    activities = replay.activities
    step = activities.runs.step
    found = critical_path(schedule, step.number)
    spent = (link.stop - link.start for link in found.links)
    path = dict(zip(found.activities, spent, strict=True))
    share = {key: sum(path.get(at, 0.0) for at in members) for key, members in groups.items()}
    # What is not on the path may still have made it longer, with Python that the path waited for.
    near = {key: share[key] + float(replay.awaited[groups[key]].sum()) for key in groups}
    replayed = [key for key in sorted(groups, key=lambda key: -near[key]) if near[key] > 0]
    replayed = replayed[:_REPLAYED]
    members = [groups[key] for key in replayed]
    half = dict(zip(replayed, replay.each(members, 0.5), strict=True))
    none = dict(zip(replayed, replay.each(members, 0.0), strict=True))
    for key, positions in groups.items():
        time = float(replay.recorded[positions].sum())
        gains = (
            max(0.0, step.seconds - half.get(key, step.seconds - share[key] / 2)),
            max(0.0, step.seconds - none.get(key, step.seconds - share[key])),
        )
        yield key, (time, share[key], *gains)


def _sample(schedule: Schedule) -> list[Step]:
    """The typical step, and the steps closest to it: as many longer as shorter ones."""
    ordered = sorted(schedule.counted, key=lambda step: step.seconds)
    middle = ordered.index(schedule.typical)
    most = min(_STEPS, _SLICES // len(schedule.typical.slices))
    around = max(0, min((most - 1) // 2, middle, len(ordered) - 1 - middle))
    return ordered[middle - around : middle + around + 1]


def what_if(schedule: Schedule) -> WhatIf:
    """Return the replays of a schedule; they are prepared once."""
    return schedule.once(("what if", 0), lambda: WhatIf(schedule))
