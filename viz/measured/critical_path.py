"""The measured critical path: the chain of activities that determined the duration of a step.

It is found backwards from the activity that ended last. Each activity follows the one that it
waited for last, back to the beginning of the step. So the path covers every moment of the step:
with work, with time between operators, or with a delay during which an activity was ready but not
started. Work that is not on the path has slack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from dpexec.viz.measured.activities import Activities, Activity, activities_of, part_at
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.runs import Run
from dpexec.viz.measured.schedule import Schedule, Step
from dpexec.viz.measured.shares import PathPart

Reason = Literal["data", "straggler", "thread", "order", "begin"]

REASONS: tuple[Reason, ...] = get_args(Reason)


class Link(NamedTuple):
    """An activity of the path, and why it began when it did.

    Args:
        slice: id of the slice at work.
        start: Seconds; the previous link ends `delay` seconds earlier.
        stop: Seconds; the next link or its delay begins here.
        part: Kind of work.
        reason: Why it waited for the previous link: "data", it needs its result; "straggler", the
            same, and another device had done its twin earlier; "thread", its thread was busy with
            it; "order", both are in one task; "begin", there is no previous link.
        delay: Seconds for which it was ready but did not begin.
        lead: Seconds by which the previous link ended later than everything else that it waited
            for; 0 within a task.
        device: Its device; None if it belongs to all devices.
        name: Name of the slice; for a task or transfer, without its number.
        turn: Seconds of its time in which it waited for Python of other threads.
        held: Seconds of its delay in which it did.
        task: Name of its task, or the same name if it is part of none.
    """

    slice: int
    start: float
    stop: float
    part: PathPart
    reason: Reason
    delay: float
    lead: float
    device: int | None
    name: str
    turn: float = 0.0
    held: float = 0.0
    task: str = ""


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of a step.

    Args:
        step: Number of the step.
        seconds: The duration of the step, and so of the path.
        unhindered: The duration without delays, with the same threads, which wait for Python of
            each other as before.
        links: The links, in order.
        activities: By link: the position of its activity among those of the step.
        nodes: The operators of the graph at work on it, if known.
        slack: By slice: how many seconds longer it may take without making the step longer.
        ordered: Whether the trace holds the dependencies of tasks; if not, delays may be waits.
    """

    step: int
    seconds: float
    unhindered: float
    links: tuple[Link, ...]
    activities: tuple[int, ...]
    nodes: tuple[int, ...]
    slack: Mapping[int, float]
    ordered: bool

    @cached_property
    def slices(self) -> tuple[int, ...]:
        """Ids of the slices at work on it, in order."""
        idle = ("overhead", "straggler")
        work = (link.slice for link in self.links if link.part not in idle)
        return tuple(dict.fromkeys(work))

    @cached_property
    def times(self) -> dict[int, float]:
        """Seconds on the path by the id of the slice."""
        found: dict[int, float] = {}
        for link in self.links:
            found[link.slice] = found.get(link.slice, 0.0) + link.stop - link.start
        return found

    @cached_property
    def parts(self) -> dict[PathPart, float]:
        """Seconds by kind of work or waiting; they add up to the step."""
        found = dict.fromkeys(get_args(PathPart), 0.0)
        for link in self.links:
            found[link.part] += link.stop - link.start - link.turn
            found["turn"] += link.turn + link.held
            found["scheduler" if self.ordered else "unknown"] += link.delay - link.held
        return found

    @property
    def work(self) -> float:
        """Seconds of work, without waiting."""
        waits = ("turn", "straggler", "scheduler", "unknown")
        return self.seconds - sum(self.parts[name] for name in waits)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "unhindered": self.unhindered,
            "parts": self.parts,
            "links": [link._asdict() for link in self.links],
            "nodes": list(self.nodes),
            "slack": {str(index): value for index, value in self.slack.items()},
        }


def critical_path(schedule: Schedule, step: int | None = None) -> CriticalPath:
    """Find the critical path of a step.

    Args:
        schedule: The trace. Without a graph in it only the order on the threads is known.
        step: Number of the step; None for the typical one.

    Raises:
        ValueError: There is no such step.
    """
    chosen = schedule.step(step)
    return schedule.once(("path", chosen.number), lambda: _path_of(schedule, chosen))


def _path_of(schedule: Schedule, step: Step) -> CriticalPath:
    activities = activities_of(schedule, step)
    positions, links = path_links(activities)
    replay = Replay(activities)
    turns, held = replay.turns.tolist(), replay.held.tolist()
    links = [
        link._replace(turn=min(link.stop - link.start, turns[at]), held=min(link.delay, held[at]))
        if turns[at] or held[at]  # few links, and a copy takes longer than finding them
        else link
        for at, link in zip(positions, links, strict=True)
    ]
    slack: dict[int, float] = {}
    for one, spare in zip(activities.all, replay.slack(), strict=True):
        if one.piece.is_leaf_work:
            slack[one.piece.id] = min(spare, slack.get(one.piece.id, spare))
    idle = ("overhead", "straggler")
    pieces = (schedule.by_id[link.slice] for link in links if link.part not in idle)
    nodes = (node for piece in pieces for node in schedule.nodes_of(piece))
    return CriticalPath(
        step=step.number,
        seconds=step.seconds,
        unhindered=replay.seconds(delays=np.minimum(activities.delays, replay.held).tolist()),
        links=tuple(links),
        activities=tuple(positions),
        nodes=tuple(dict.fromkeys(nodes)),
        slack=slack,
        ordered=activities.runs.is_ordered or schedule.facts is not None,
    )


def path_links(activities: Activities) -> tuple[list[int], list[Link]]:
    """Return the path, found from the last activity back to the beginning, in order of time.

    Args:
        activities: The activities of a step.

    Returns:
        Positions of its activities, and its links.
    """
    schedule, step = activities.runs.schedule, activities.runs.step
    return schedule.once(("links", step.number), lambda: _links_of(activities))


def _links_of(activities: Activities) -> tuple[list[int], list[Link]]:
    positions, found = [], []
    at: int | None = max(range(len(activities.all)), key=lambda i: (activities.all[i].stop, i))
    stop = activities.runs.step.stop
    while at is not None:
        one, source = activities.all[at], activities.waited[at]
        ready = activities.runs.step.start if source is None else activities.all[source].stop
        begun = min(one.start, stop)
        ready = min(ready, begun)
        positions.append(at)
        run = activities.runs.runs[one.run]
        found.append(
            Link(
                slice=one.piece.id,
                start=begun,
                stop=stop,
                part=part_at(activities.runs.schedule, one),
                reason=_reason(activities, at, source),
                delay=begun - ready,
                lead=_lead(activities, at, source),
                device=one.piece.event.device,
                name=_name_of(run, one),
                task=run.name,
            )
        )
        at, stop = source, ready
    return positions[::-1], found[::-1]


def _name_of(run: Run, one: Activity) -> str:
    if one.waits_for is not None:
        return f"waiting for {one.waits_for}"
    return run.name if run.piece is one.piece else one.piece.event.name


def _lead(activities: Activities, at: int, source: int | None) -> float:
    """By how much the activity that one waited for ended later than the others that it awaited."""
    thread = activities.thread[at]
    if source is None or (source == thread and not activities.is_first(at)):
        return 0.0
    ends = (activities.all[other].stop for other in activities.before[at] if other != source)
    return activities.all[source].stop - max(ends, default=activities.runs.step.start)


def _reason(activities: Activities, at: int, source: int | None) -> Reason:
    if source is None:
        return "begin"
    runs = activities.runs
    run, before = runs.runs[activities.all[at].run], runs.runs[activities.all[source].run]
    if run is before:
        return "order"
    if source not in activities.needs[at]:
        return "thread"
    return "straggler" if _is_late(activities, run, before) else "data"


def _is_late(activities: Activities, run: Run, before: Run) -> bool:
    """Whether another device that takes part had done its twin earlier."""
    runs = activities.runs
    if before.piece.event.device is None:
        return False
    twins = (runs.twin(before, device) for device in run.devices - before.devices)
    return any(twin is not None and twin.stop < before.stop for twin in twins)
