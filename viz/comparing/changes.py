"""The times of operators in two runs, and which operators are the same."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from dpexec.viz.measured.bodies import Inside, inner_name, insides_of
from dpexec.viz.measured.schedule import Schedule, Slice
from dpexec.viz.measured.typical import Typical
from dpexec.viz.pages.units import shortened

Key = tuple[Any, ...]
"""The identity of an operator in both runs: its device, then the signatures of its parts."""


@dataclass(frozen=True)
class Change:
    """The time of an operator per step in both runs.

    Args:
        name: The operator and its output.
        device: Its device; None for all devices.
        before: Seconds per step in the first run, the median of its steps.
        after: The same in the second run.
        noise: The median distance of steps from their run's median, for both runs together.
        nodes: Its numbers in the graph of the first run.
        is_rewritten: Whether the runs have other operators that make the same variables.
    """

    name: str
    device: int | None
    before: float
    after: float
    noise: float
    nodes: tuple[int, ...]
    is_rewritten: bool = False

    @property
    def difference(self) -> float:
        """Seconds per step that it takes longer in the second run."""
        return self.after - self.before

    @property
    def ratio(self) -> float | None:
        """How many times longer it takes; None if it took no time before."""
        return self.after / self.before if self.before else None

    @property
    def certain(self) -> float:
        """The size of the difference, less the part that noise explains."""
        return max(0.0, abs(self.difference) - 2 * self.noise)

    @property
    def label(self) -> str:
        """The operator with its device."""
        return _label(self.name, self.device)

    def short(self, longest: int) -> str:
        """Return the label in so many characters; the device is never cut off."""
        return _label(self.name, self.device, longest)


@dataclass(frozen=True)
class Lone:
    """An operator of one run that has no partner in the other one.

    Args:
        name: The operator and its output.
        device: Its device; None for all devices.
        seconds: Its time per step.
    """

    name: str
    device: int | None
    seconds: float

    @property
    def label(self) -> str:
        """The operator with its device."""
        return _label(self.name, self.device)

    def short(self, longest: int) -> str:
        """Return the label in so many characters; the device is never cut off."""
        return _label(self.name, self.device, longest)


def _label(name: str, device: int | None, longest: int | None = None) -> str:
    where = "" if device is None else f" · device {device}"
    return (name if longest is None else shortened(name, longest - len(where))) + where


@dataclass
class Times:
    """The times of an operator, step by step; or of several, if they are rewritten."""

    name: str
    device: int | None
    seconds: list[float]
    nodes: dict[int, None]
    is_rewritten: bool = False


def per_step(schedule: Schedule) -> dict[Key, Times]:
    """Return the seconds of each operator, by its identity, in each step in which it runs."""
    found: dict[Key, Times] = {}
    for step in schedule.counted:
        seen: dict[Key, int] = {}
        sums: dict[Key, float] = {}
        insides = insides_of(schedule, step)
        for index in step.slices:
            piece = schedule.by_id[index]
            if not piece.is_leaf_work:
                continue
            inside = insides.places.get(piece.id)
            if inside is None:
                key, name = _identity(schedule, piece)
            else:
                key, name = _inner(schedule, inside, piece.event.device)
            if (
                inside is None and schedule.nodes_of(piece) == ()
            ):  # equal names are told apart by their order only
                seen[key] = seen.get(key, 0) + 1
                key = (*key, seen[key])
            sums[key] = sums.get(key, 0.0) + piece.own
            row = found.setdefault(key, Times(name, piece.event.device, [], {}))
            row.nodes.update(dict.fromkeys(schedule.nodes_of(piece)))
        for key, seconds in sums.items():
            found[key].seconds.append(seconds)
    return found


def _identity(schedule: Schedule, piece: Slice) -> tuple[Key, str]:
    """The identity of an operator, equal in all runs of the network, and its name."""
    event, nodes = piece.event, schedule.nodes_of(piece)
    if schedule.facts is None or not nodes:
        return (event.kind, event.name, event.device), event.name
    made = tuple(schedule.facts.signatures[node] for node in nodes)
    label = schedule.facts.label(nodes[-1])
    if len(nodes) > 1:
        label = f"{event.name} → {label.split(' → ')[-1]}"
    return (event.device, *made), label


def _inner(schedule: Schedule, inside: Inside, device: int | None) -> tuple[Key, str]:
    """The identity of an operator of a block, the same in all rounds, and its name."""
    assert schedule.facts is not None
    around = schedule.facts.signatures[inside.node]
    return (device, inside.place, *around), inner_name(schedule, inside)


def change_of(one: Times, other: Times) -> Change:
    """Return the times of an operator in both runs."""
    before, after = Typical.of(one.seconds), Typical.of(other.seconds)
    noise = before.spread + after.spread
    nodes, rewritten = tuple(one.nodes), one.is_rewritten
    return Change(one.name, one.device, before.median, after.median, noise, nodes, rewritten)


def lone_of(mine: dict[Key, Times], other: dict[Key, Times]) -> tuple[Lone, ...]:
    """Return the operators that the other run does not have, the longest first."""
    found = [
        Lone(times.name, times.device, statistics.median(times.seconds))
        for key, times in mine.items()
        if key not in other
    ]
    return tuple(sorted(found, key=lambda lone: -lone.seconds))
