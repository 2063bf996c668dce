"""Divides the time of a step along its critical path; the parts add up to the step.

Work on the path counts for its operator, up to the time that the fastest device of the step takes
for it. The rest is imbalance, for which the other devices wait. Two kinds of time are kept separate
by the operator that was waited for: work during which a ready task of another device waited for the
same thread, and time in which an operator waited for Python of another thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
from dpexec.viz.measured import intervals
from dpexec.viz.measured.activities import Activities, activities_of, part_of
from dpexec.viz.measured.bodies import Inside, bodies_of, inner_name, insides_of
from dpexec.viz.measured.critical_path import Link, path_links
from dpexec.viz.measured.graph_facts import GraphFacts
from dpexec.viz.measured.grouping import operator_of
from dpexec.viz.measured.intervals import Interval
from dpexec.viz.measured.schedule import Schedule, Slice, Step
from dpexec.viz.measured.turns import Turns, turns_of
from dpexec.viz.pages.words import PARTS

Behind = Literal["no_free_thread", "turn"]
"""Kinds of waits for other work: for a thread, or for a thread's Python."""

BEHIND: tuple[Behind, ...] = get_args(Behind)

PartKind = Literal[
    "operator",
    "communication",
    "data",
    "overhead",
    "straggler",
    "no_free_thread",
    "turn",
    "scheduler",
    "unknown",
]


@dataclass(frozen=True)
class Part:
    """A part of a step's time, the same in all runs of a network and on all devices.

    Args:
        kind: Its kind.
        key: The identity of an operator or collective; None for other kinds.
    """

    kind: PartKind
    key: object = None


@dataclass
class StepParts:
    """A step, divided.

    Args:
        seconds: The duration of the step.
        own: Seconds on the path by part; with those of `behind` they add up to the step.
        behind: The same for waits, by their kind and the part that was waited for.
        unit: By operator: its seconds on a device, the mean over the devices.
        by_device: By operator and device: its seconds.
    """

    seconds: float
    own: dict[Part, float]
    behind: Mapping[Behind, dict[Part, float]]
    unit: dict[Part, float]
    by_device: Mapping[Part, Mapping[int, float]]


class InBlock(NamedTuple):
    """The identity of an operator of a block.

    Args:
        around: Identity of the operator of the graph that runs the block.
        place: Its position in the block.
    """

    around: Hashable
    place: int


class LateOn(NamedTuple):
    """Why others wait for a device: what it takes longer for than the fastest device.

    Args:
        what: The operator's part; None for all of them.
        device: The device.
    """

    what: Part | None
    device: int | None


class Divider:
    """Divides the steps of a schedule.

    Args:
        schedule: The trace.

    Attributes:
        names: Names of operators and collectives, by part.
        nodes: Their numbers in the graph, by part.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self._steps = {step.number: step for step in schedule.steps}
        self.names: dict[Part, str] = {}
        self.nodes: dict[Part, dict[int, None]] = {}
        self._parts: dict[tuple[object, ...], Part] = {}

    def parts(self, step: Step) -> StepParts:
        """Return a step, divided."""
        activities = activities_of(self.schedule, step)
        turns = turns_of(activities)
        inside, held = (find(len(activities.all)) for find in (turns.inside, turns.before))
        spent = self._spent(activities, inside)
        own: dict[Part, float] = defaultdict(float)
        behind: dict[Behind, dict[Part, float]] = {kind: defaultdict(float) for kind in BEHIND}
        positions, links = path_links(activities)
        threads = list(_thread_waits(activities, positions, links))
        fastest = _fastest(spent)
        late: Part = Part("scheduler" if activities.runs.is_ordered else "unknown")
        for at, link in zip(positions, links, strict=True):
            one, length = activities.all[at], link.stop - link.start
            late_by = min(max(0.0, link.delay), float(held[at]))
            own[late] += link.delay - late_by
            part = self.part(one.piece) if one.waits_for is None else self._of_others(link)
            waited = intervals.within(threads, link.start, link.stop)
            behind["no_free_thread"][part] += waited
            turn = min(length - waited, float(inside[at]))
            for other, share in _awaited(turns, at, late_by + turn):
                behind["turn"][self.part(activities.all[other].piece)] += share
            rest = length - waited - turn
            excess = rest * _excess(spent.get(part, {}), link.device, fastest)
            own[part] += rest - excess
            if excess:
                own[self._late(part, one.piece, link.device)] += excess
        unit = {part: sum(by.values()) / len(by) for part, by in spent.items()}
        waits = {kind: {p: s for p, s in found.items() if s} for kind, found in behind.items()}
        return StepParts(step.seconds, dict(own), waits, unit, spent)

    def _of_others(self, link: Link) -> Part:
        """The part of a wait for a process that is not in the trace."""
        part = Part("straggler", link.name)
        self.names[part] = link.name
        return part

    def _late(self, part: Part, piece: Slice, device: int | None) -> Part:
        """The part of what a device takes longer for an operator than the fastest one."""
        late = Part("straggler", LateOn(part, device))
        nodes = self.schedule.nodes_of(piece) or tuple(self.nodes.get(part, ()))
        self._name_as(late, self.names[part], nodes)
        return late

    def rounds(self) -> dict[Part, float]:
        """Return the rounds of every loop, the mean over the steps whose rounds were recorded."""
        facts = self.schedule.facts
        found: dict[Part, list[int]] = {}
        for step in self.schedule.steps if facts is not None else ():
            for node, rounds in insides_of(self.schedule, step).rounds.items():
                assert facts is not None
                part = Part("operator", (facts.signatures[node],))
                self._name_as(part, facts.label(node), (node,))
                found.setdefault(part, []).append(rounds)
        return {part: sum(each) / len(each) for part, each in found.items()}

    def _spent(
        self, activities: Activities, inside: npt.NDArray[np.float64]
    ) -> dict[Part, dict[int, float]]:
        """Seconds that every device spends on an operator, without its waits for Python."""
        found: dict[Part, dict[int, float]] = {}
        for one, waited in zip(activities.all, inside.tolist(), strict=True):
            part, device = self.part(one.piece), one.piece.event.device
            if part.kind == "operator" and device is not None:
                by = found.setdefault(part, {})
                by[device] = by.get(device, 0.0) + one.stop - one.start - waited
        return found

    def part(self, piece: Slice) -> Part:
        """Return the part of a step that a slice counts for."""
        event = piece.event
        # A slice that is no operator of the graph has its place in a block, or none at all.
        alike = (event.kind, event.name, event.node) if event.node is not None else (piece.id,)
        if alike not in self._parts:
            self._parts[alike] = self._made(piece)
        return self._parts[alike]

    def _made(self, piece: Slice) -> Part:
        kind = part_of(self.schedule, piece)
        if kind == "compute":
            nodes = self.schedule.nodes_of(piece)
            facts = self.schedule.facts
            key: object = operator_of(self.schedule, piece)
            if facts is not None and nodes:
                key = tuple(facts.signatures[node] for node in nodes)
            elif facts is not None and (inside := self._inside(piece)) is not None:
                return self._inner(inside, facts)
            part = Part("operator", key)
            self._name(part, piece, nodes)
            return part
        if kind == "communication":
            part = Part("communication", piece.event.name.split("-")[0])
            self._name(part, piece, self.schedule.nodes_of(piece))
            return part
        return Part("data" if kind == "data" else "overhead")

    def _inside(self, piece: Slice) -> Inside | None:
        if not bodies_of(self.schedule):
            return None
        step = self._steps[piece.event.step]
        return insides_of(self.schedule, step).places.get(piece.id)

    def _inner(self, inside: Inside, facts: GraphFacts) -> Part:
        """The part of an operator of a block; its place in the block tells it from others."""
        part = Part("operator", InBlock(facts.signatures[inside.node], inside.place))
        self._name_as(part, inner_name(self.schedule, inside), (inside.node,))
        return part

    def _name_as(self, part: Part, name: str, nodes: tuple[int, ...]) -> None:
        self.nodes.setdefault(part, {}).update(dict.fromkeys(nodes))
        self.names.setdefault(part, name)

    def _name(self, part: Part, piece: Slice, nodes: tuple[int, ...]) -> None:
        facts = self.schedule.facts
        name = piece.event.name
        if piece.event.kind == "task" or part.kind == "communication":
            name = name.split("-")[0]
        elif facts is not None and nodes:
            name = facts.label(nodes[-1])
            if len(nodes) > 1:
                name = f"{piece.event.name} → {name.split(' → ')[-1]}"
        self._name_as(part, name, nodes)


def _fastest(spent: dict[Part, dict[int, float]]) -> int | None:
    """The device that spends the least time on all operators together."""
    sums: dict[int, float] = {}
    for by_device in spent.values():
        for device, seconds in by_device.items():
            sums[device] = sums.get(device, 0.0) + seconds
    return min(sums, key=sums.__getitem__, default=None)


def _excess(by_device: dict[int, float], device: int | None, fastest: int | None) -> float:
    """The share of a device's time for an operator that it takes longer than the fastest device.

    It is negative for an operator that takes longer on the fastest device, so that differences
    between devices cancel out within a step.
    """
    if device is None or fastest is None or fastest not in by_device:
        return 0.0
    mine = by_device.get(device, 0.0)
    return 1 - by_device[fastest] / mine if mine else 0.0


def _thread_waits(
    activities: Activities, positions: list[int], links: list[Link]
) -> Iterator[Interval]:
    """When tasks on the path waited for their thread to do another device's work, in order."""
    if not activities.runs.is_ordered:
        return
    found = []
    for at, link in zip(positions, links, strict=True):
        source = activities.thread[at]
        if link.reason != "thread" or source is None or not activities.is_first(at):
            continue
        devices = {activities.all[i].piece.event.device for i in (at, source)}
        ends = (activities.all[i].stop for i in activities.needs[at])
        ready = max(ends, default=activities.runs.step.start)
        if len(devices) == 2 and None not in devices and ready < link.start - link.delay:
            found.append((ready, link.start - link.delay))
    yield from intervals.union(found)


def _awaited(turns: Turns, at: int, seconds: float) -> Iterator[tuple[int, float]]:
    """Divide the time for which an activity waited for Python among those that ran it."""
    rows = (turns.waiting == at).nonzero()[0] if seconds > 0 else ()
    whole = sum(float(turns.seconds[row]) for row in rows)
    for row in rows:
        yield int(turns.source[row]), seconds * float(turns.seconds[row]) / whole


@dataclass(frozen=True)
class Longer:
    """What makes a step longer than the typical one most.

    Args:
        name: An operator, or a kind of time, in words.
        device: The device of that work; None if it is no work of one device.
        seconds: The seconds that it takes longer.
    """

    name: str
    device: int | None
    seconds: float


def why_longer(schedule: Schedule, steps: Iterable[Step]) -> list[Longer]:
    """Return for some steps what makes them longer than the typical one most.

    Work counts for its operator alone, also where other devices wait for it.

    Args:
        schedule: The trace.
        steps: Other steps than the typical one.
    """
    divider = Divider(schedule)
    usual = {p: sum(by.values()) for p, by in _on_path(divider, schedule.typical).items()}
    return [_longer(divider, usual, _on_path(divider, step)) for step in steps]


_ByDevice = dict[Part, dict[int | None, float]]


def _longer(divider: Divider, usual: Mapping[Part, float], found: _ByDevice) -> Longer:
    more = {part: sum(by.values()) - usual.get(part, 0.0) for part, by in found.items()}
    part = max(more, key=more.__getitem__)
    device = max(found[part], key=found[part].__getitem__)
    return Longer(divider.names.get(part) or PARTS[part.kind], device, more[part])


def _on_path(divider: Divider, step: Step) -> _ByDevice:
    """Seconds on the critical path of a step by part and device; delays are of no device."""
    activities = activities_of(divider.schedule, step)
    turns = turns_of(activities)
    inside, held = (find(len(activities.all)) for find in (turns.inside, turns.before))
    found: _ByDevice = defaultdict(lambda: defaultdict(float))
    late: Part = Part("scheduler" if activities.runs.is_ordered else "unknown")
    for at, link in zip(*path_links(activities), strict=True):
        part = divider.part(activities.all[at].piece)
        if link.part == "straggler":
            part = Part("straggler", link.name)
            divider.names[part] = link.name
        length = link.stop - link.start
        turn = min(length, float(inside[at]))
        before = min(max(0.0, link.delay), float(held[at]))
        found[part][link.device] += length - turn
        if turn + before:
            found[Part("turn")][link.device] += turn + before
        found[late][None] += link.delay - before
    return found
