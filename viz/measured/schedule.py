"""A trace prepared for views: steps, tracks, and nested slices.

Every view of a trace starts here, so that they all count the same slices.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

from dpexec.viz.measured.graph_facts import GraphFacts
from dpexec.viz.measured.nesting import nest

from dpexec.engine.trace import Event, Trace

_Made = TypeVar("_Made")

WARM = 1.5
"""First steps that took more than this many times the median are left out of averages."""

FAILURE = "failure"
COMMUNICATION = ("collective", "transfer")
DATA = ("feed", "fetch")


@dataclass(frozen=True, slots=True)
class Track:
    """A row of the timeline.

    Args:
        device: The device whose work it shows; None for work that belongs to all devices.
        thread: Number of the thread that did the work.
        name: Label of the row.
    """

    device: int | None
    thread: int
    name: str

    @property
    def group(self) -> str:
        """The heading above the tracks of the device."""
        return "all devices" if self.device is None else f"device {self.device}"


class Slice(NamedTuple):
    """An event in its place.

    Args:
        id: Position of the event in the trace.
        event: What ran.
        track: Position of its track.
        depth: 0 for a task or an event outside tasks, 1 for the operators in it, and so on.
        parent: id of the slice that it is part of.
        own: Seconds that are not covered by its parts.
    """

    id: int
    event: Event
    track: int
    depth: int
    parent: int | None
    own: float

    @property
    def is_leaf_work(self) -> bool:
        """Whether its own time is work, and not time between operators; no time is no work."""
        return self.event.kind != "task" or self.own >= self.event.duration > 0


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the run.

    Args:
        number: Its number, counted from 0.
        start: Start of the first event, in seconds.
        stop: End of the last event, in seconds.
        slices: ids of its slices, in order of their start.
    """

    number: int
    start: float
    stop: float
    slices: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """The seconds from the start of the first event to the end of the last one."""
        return self.stop - self.start


class Schedule:
    """The slices of a trace on their tracks.

    Args:
        trace: The trace.
        steps: Numbers of the steps to keep; None for all.

    Attributes:
        is_chosen: Whether steps were chosen; then all of them count.

    Raises:
        ValueError: The trace is empty, or has no such step.
    """

    def __init__(self, trace: Trace, steps: Iterable[int] | None = None) -> None:
        if not trace.events:
            raise ValueError(
                "the trace is empty: nothing ran while it was recorded; run a step with "
                "ExecutionStrategy.trace = True"
            )
        self.trace = trace
        self.facts = GraphFacts(trace.graph) if trace.graph else None
        chosen = None if steps is None else set(steps)
        self.is_chosen = chosen is not None
        self.tracks, self.slices = _place(_chosen(trace, chosen))
        self._made: dict[tuple[str, int], Any] = {}
        self._nodes: dict[int, tuple[int, ...]] = {}  # by slice, as views ask for them
        self._found_roles: dict[int, str] = {}

    @classmethod
    def of(cls, source: Trace | Schedule, steps: Iterable[int] | None = None) -> Schedule:
        """Return a schedule unchanged, or that of a trace; views of one run can share it."""
        return source if isinstance(source, Schedule) else cls(source, steps)

    def once(self, key: tuple[str, int], make: Callable[[], _Made]) -> _Made:
        """Return the value of a key, which is made at the first call."""
        if key not in self._made:
            self._made[key] = make()
        found: _Made = self._made[key]
        return found

    @cached_property
    def by_id(self) -> dict[int, Slice]:
        """The slices by the position of their event in the trace."""
        return {piece.id: piece for piece in self.slices}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The completed steps, in order."""
        broken = {step.number for step in self.failed}
        return tuple(step for step in self._all_steps if step.number not in broken)

    @cached_property
    def failed(self) -> tuple[Step, ...]:
        """The steps that an error ended, in order."""
        broken = {piece.event.step for piece in self.slices if piece.event.kind == FAILURE}
        return tuple(step for step in self._all_steps if step.number in broken)

    @cached_property
    def _all_steps(self) -> tuple[Step, ...]:
        found: dict[int, list[Slice]] = {}
        for piece in self.slices:
            found.setdefault(piece.event.step, []).append(piece)
        return tuple(
            Step(
                number,
                min(piece.event.start for piece in pieces),
                max(piece.event.stop for piece in pieces),
                tuple(piece.id for piece in sorted(pieces, key=_in_time)),
            )
            for number, pieces in sorted(found.items())
        )

    @cached_property
    def devices(self) -> tuple[int, ...]:
        """The devices, in order, including devices of the graph without work."""
        known = self.facts.devices if self.facts else ()
        return tuple(sorted({*known, *(t.device for t in self.tracks if t.device is not None)}))

    @cached_property
    def devices_of_thread(self) -> dict[int, frozenset[int]]:
        """By thread, the devices whose tasks it ran; on a cluster, those of its worker."""
        found: dict[int, set[int]] = {}
        for track in self.tracks:
            if track.device is not None:
                found.setdefault(track.thread, set()).add(track.device)
        return {thread: frozenset(devices) for thread, devices in found.items()}

    @property
    def shown(self) -> Step:
        """The step that a picture of one step shows: the typical one, or one that failed."""
        return self.typical if self.steps else self.failed[0]

    @property
    def typical(self) -> Step:
        """The step with the median time of the counted steps (the earlier one of two)."""
        ordered = sorted(self.counted, key=lambda step: step.seconds)
        return ordered[(len(ordered) - 1) // 2]

    @cached_property
    def warm(self) -> tuple[Step, ...]:
        """The steps without the first ones that took more than `WARM` times the median.

        First steps compile kernels and reserve memory, so their times do not represent the others.
        Nor do those of first steps that recorded the rounds of loops, if later ones did not.

        Raises:
            ValueError: No step was completed.
        """
        self.require_steps()
        limit = WARM * statistics.median(step.seconds for step in self.steps)
        first = next(n for n, step in enumerate(self.steps) if step.seconds <= limit)
        in_rounds = {event.step for event in self.trace.events if "inside" in event.args}
        plain = next((n for n, s in enumerate(self.steps) if s.number not in in_rounds), first)
        return self.steps[max(first, plain) :]

    @property
    def counted(self) -> tuple[Step, ...]:
        """The steps that views count and average: those that were chosen, else the warm ones.

        Raises:
            ValueError: No step was completed.
        """
        self.require_steps()
        return self.steps if self.is_chosen else self.warm

    @cached_property
    def middle(self) -> tuple[Step, ...]:
        """The counted steps without the shortest and the longest quarter of them.

        Shares of these steps agree with the median step, also if others interrupted some steps.
        """
        ordered = sorted(self.counted, key=lambda step: step.seconds)
        ends = (len(ordered) + 1) // 4
        chosen = ordered[ends : len(ordered) - ends]
        return tuple(sorted(chosen, key=lambda step: step.number))

    @property
    def left_out(self) -> list[str]:
        """A sentence about the steps that are not counted, if there are any."""
        number = len(self.steps) - len(self.counted)
        which = "first step" if number == 1 else f"first {number} steps"
        return [f"Not counted: the {which}, slower than the others."] if number else []

    def require_steps(self) -> None:
        """Refuse a trace without figures.

        Raises:
            ValueError: No step was completed.
        """
        if not self.steps:
            raise ValueError(
                "no step was completed, so there are no figures; viz.report and viz.timeline show "
                "what ran until the failure"
            )

    def step(self, number: int | None) -> Step:
        """A step by its number; None for the typical one.

        Raises:
            ValueError: There is no such step.
        """
        if number is None:
            return self.typical
        for step in self.steps:
            if step.number == number:
                return step
        raise ValueError(_no_step(number, [step.number for step in self.steps]))

    def node_of(self, piece: Slice) -> int | None:
        """The operator of the graph that a slice is, or is part of."""
        at: Slice | None = piece
        while at is not None:
            if at.event.node is not None:
                return at.event.node
            at = None if at.parent is None else self.by_id[at.parent]
        return None

    def nodes_of(self, piece: Slice) -> tuple[int, ...]:
        """The operators of the graph that an event stands for: several, if one kernel does them.

        The event of a kernel names the first one; the others follow it in its task.
        """
        if piece.id not in self._nodes:
            self._nodes[piece.id] = self._members(piece)
        return self._nodes[piece.id]

    def _members(self, piece: Slice) -> tuple[int, ...]:
        node, parts = piece.event.node, piece.event.args.get("parts") or ()
        if node is None:
            return ()
        if self.facts is None or len(parts) < 2 or node not in self.facts.task_of:
            return (node,)
        members = self.facts.tasks[self.facts.task_of[node]]["nodes"]
        at = self._places[node]
        found = members[at : at + len(parts)]
        named = [self.facts.by_id[member]["name"] for member in found]
        return tuple(found) if named == list(parts) else (node,)

    @cached_property
    def _places(self) -> dict[int, int]:
        tasks = self.facts.tasks.values() if self.facts else ()
        return {node: at for task in tasks for at, node in enumerate(task["nodes"])}

    @cached_property
    def _roles(self) -> dict[int, str]:
        nodes = self.facts.nodes if self.facts else []
        return {node["id"]: node["role"] for node in nodes}

    def role_of(self, piece: Slice) -> str:
        """The role of a slice; for a task, the role of most of its parts."""
        if piece.id not in self._found_roles:
            self._found_roles[piece.id] = self._role(piece)
        return self._found_roles[piece.id]

    def _role(self, piece: Slice) -> str:
        event = piece.event
        if event.kind in COMMUNICATION:
            return "collective"
        if event.kind in DATA or event.kind == FAILURE:
            return event.kind
        node = self.node_of(piece)
        if node in self._roles:
            return self._roles[node]
        if event.kind == "task":
            planned = self._planned_roles.get(event.key)
            return planned or self._task_roles.get(piece.id) or _guess(event)
        return _guess(event)

    @cached_property
    def _planned_roles(self) -> dict[str, str]:
        """By task, the role of most of its operators; of equally frequent roles, the last one."""
        found = {}
        for key, task in self.facts.tasks.items() if self.facts else ():
            roles = [self._roles[node] for node in task["nodes"]]
            times = Counter(roles)
            found[key] = max(reversed(roles), key=times.__getitem__)
        return found

    @cached_property
    def _task_roles(self) -> dict[int, str]:
        times: dict[int, dict[str, float]] = {}
        for piece in self.slices:
            if piece.depth == 1 and piece.parent is not None and piece.event.kind != "task":
                roles = times.setdefault(piece.parent, {})
                role = self.role_of(piece)
                roles[role] = roles.get(role, 0.0) + piece.event.duration
        return {task: max(roles, key=roles.__getitem__) for task, roles in times.items()}


def _in_time(piece: Slice) -> tuple[float, int, bool, float]:
    """A sort key: events without duration come before others that start at the same moment."""
    event = piece.event
    return event.start, piece.depth, event.stop > event.start, -event.stop


def _guess(event: Event) -> str:
    """The role of an event that is in no graph, from its name."""
    if event.kind == "task" and event.device is None:
        return "collective"
    if "optimizer" in event.key:
        return "optimize"
    name = event.name.lower().replace(" ", "")
    return "backward" if "_grad" in name or name == "scalelossgrad" else "forward"


def _no_step(number: int, known: Sequence[int]) -> str:
    return f"the trace has no step {number}; it has {', '.join(map(str, known))}"


def _chosen(trace: Trace, wanted: set[int] | None) -> list[tuple[int, Event]]:
    numbered = list(enumerate(trace.events))
    if wanted is None:
        return numbered
    known = sorted({event.step for event in trace.events})
    for number in sorted(wanted):
        if number not in known:
            raise ValueError(_no_step(number, known))
    return [(index, event) for index, event in numbered if event.step in wanted]


def _place(events: Sequence[tuple[int, Event]]) -> tuple[list[Track], list[Slice]]:
    """Put events on tracks, nested; an event that would overlap gets a further track."""
    rows: dict[tuple[bool, int, int], list[tuple[int, Event]]] = {}
    for index, event in events:
        group = (event.device is None, event.device or 0, event.thread)
        rows.setdefault(group, []).append((index, event))
    tracks: list[Track] = []
    slices: list[Slice] = []
    for (everywhere, device, thread), row in sorted(rows.items()):
        lanes = nest(row)
        for number, lane in enumerate(lanes):
            name = f"thread {thread}" + (f" ({number + 1})" if number else "")
            slices.extend(Slice(i, e, len(tracks), d, p, own) for i, e, d, p, own in lane)
            tracks.append(Track(None if everywhere else device, thread, name))
    return tracks, slices
