"""The measured critical path: what decided how long a step took.

It is found backwards from what ended last: an activity began when the last of what it waited for
had ended, and that one began for a reason, too, until the beginning of the step. So the path covers
every moment of the step: with work, with time between operators, or with a delay during which all
that was needed was there. Work that is not on the path has slack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

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
        slice: id of the slice that was at work.
        start: Seconds; the link before ends `delay` seconds earlier.
        stop: Where the next link or its delay begins.
        part: What kind of work it is.
        reason: Why the link before is the one that it waited for: "data", it needs its result;
            "straggler", so it is, and another device had the same done earlier; "thread", its
            thread did that before; "order", both are of one task; "begin", nothing came before.
        delay: Seconds for which all of that was there and it did not begin.
        lead: Seconds by which the link before ended later than all else that it waited for; 0
            within a task.
        device: Where it ran; None for what belongs to all devices.
        name: Of the slice; of a task or transfer without its number.
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


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of a step.

    Args:
        step: Number of the step.
        seconds: How long the step took, which is how long the path is.
        unhindered: How long it would have taken if nothing were delayed, with the same threads.
        links: What decided that, in order.
        activities: By link: the position of its activity among those of the step.
        nodes: The operators of the graph at work on it, where known.
        slack: By slice: the seconds for which it may go on without the step taking longer.
        ordered: Whether the trace says what tasks wait for; without that, delays may be anything.
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
        """Seconds by what they were spent on; they add up to the step."""
        found = dict.fromkeys(get_args(PathPart), 0.0)
        for link in self.links:
            found[link.part] += link.stop - link.start
            found["scheduler" if self.ordered else "unknown"] += link.delay
        return found

    @property
    def work(self) -> float:
        """Seconds that are no waiting."""
        waits = ("straggler", "scheduler", "unknown")
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
        unhindered=replay.seconds(delays=[min(0.0, delay) for delay in activities.delays]),
        links=tuple(links),
        activities=tuple(positions),
        nodes=tuple(dict.fromkeys(nodes)),
        slack=slack,
        ordered=activities.runs.is_ordered or schedule.facts is not None,
    )


def path_links(activities: Activities) -> tuple[list[int], list[Link]]:
    """Return the path, from what ended last back to the beginning, in order of time.

    Args:
        activities: Of a step.

    Returns:
        Positions of its activities, and its links.
    """
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
            )
        )
        at, stop = source, ready
    return positions[::-1], found[::-1]


def _name_of(run: Run, one: Activity) -> str:
    if one.waits_for is not None:
        return f"waiting for {one.waits_for}"
    return run.name if run.piece is one.piece else one.piece.event.name


def _lead(activities: Activities, at: int, source: int | None) -> float:
    """By how much what an activity waited for ended after everything else that had to."""
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
    """Whether another device that takes part had the same done earlier."""
    runs = activities.runs
    if before.piece.event.device is None:
        return False
    twins = (runs.twin(before, device) for device in run.devices - before.devices)
    return any(twin is not None and twin.stop < before.stop for twin in twins)
