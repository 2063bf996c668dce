"""A step moment by moment: running operators, and the waits of each device."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from dpexec.viz.measured import intervals
from dpexec.viz.measured.runs import Run, StepRuns, runs_of
from dpexec.viz.measured.schedule import Schedule, Slice


@dataclass(frozen=True, slots=True)
class Work:
    """Operators at work.

    Args:
        nodes: The operators, by their numbers in the graph.
        start: Seconds.
        stop: Seconds.
    """

    nodes: tuple[int, ...]
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """A device that waits.

    Args:
        device: Its index.
        start: Seconds.
        stop: Seconds.
        nodes: The operators of its next task.
        text: What it waits for.
    """

    device: int
    start: float
    stop: float
    nodes: tuple[int, ...]
    text: str


@dataclass(frozen=True)
class Moments:
    """A step.

    Args:
        step: Its number.
        start: Seconds.
        stop: Seconds.
        works: The work, by start.
        waits: The waits, by start.
    """

    step: int
    start: float
    stop: float
    works: tuple[Work, ...]
    waits: tuple[Waiting, ...]


def moments(schedule: Schedule, step: int | None = None) -> Moments:
    """Return a step moment by moment.

    Args:
        schedule: A trace with its graph.
        step: Number of the step; None for the typical one.

    Raises:
        ValueError: There is no such step.
    """
    chosen = schedule.step(step)
    runs = runs_of(schedule, chosen)
    works = [work for piece in _pieces(schedule, runs) if (work := _work(runs, piece)).nodes]
    waits = [wait for device in schedule.devices for wait in _waits(runs, device)]
    return Moments(
        chosen.number,
        chosen.start,
        chosen.stop,
        tuple(sorted(works, key=lambda work: (work.start, work.nodes))),
        tuple(sorted(waits, key=lambda wait: (wait.start, wait.device))),
    )


def _pieces(schedule: Schedule, runs: StepRuns) -> Iterator[Slice]:
    for index in runs.step.slices:
        piece = schedule.by_id[index]
        if piece.is_leaf_work:
            yield piece


def _work(runs: StepRuns, piece: Slice) -> Work:
    """The operators of a slice; for a task without recorded operators, those of its plan."""
    schedule, event = runs.schedule, piece.event
    nodes = schedule.nodes_of(piece)
    if not nodes and event.kind in ("task", "collective") and schedule.facts is not None:
        nodes = tuple(schedule.facts.tasks.get(event.key, {"nodes": ()})["nodes"])
    return Work(nodes, event.start, event.stop)


def _waits(runs: StepRuns, device: int) -> Iterator[Waiting]:
    """The gaps in the work of a device, each with its next task and what that task waits for."""
    if not runs.is_ordered:
        return
    own = [at for at, run in enumerate(runs.runs) if device in run.devices]
    starts = [runs.runs[at].start for at in own]
    busy = intervals.union((runs.runs[at].start, runs.runs[at].stop) for at in own)
    for start, stop in intervals.gaps(busy, (runs.step.start, runs.step.stop)):
        following = bisect_left(starts, stop)
        if following == len(own):
            continue
        run = runs.runs[own[following]]
        sources = [runs.runs[index] for index in runs.before[own[following]]]
        last = max(sources, key=lambda source: source.stop, default=None)
        ready = runs.step.start if last is None else last.stop
        nodes = _nodes(runs, run)
        if last is not None and ready > start:
            yield Waiting(device, start, min(ready, stop), nodes, f"for {_named(last)}")
        if ready < stop:
            yield Waiting(device, max(start, ready), stop, nodes, "to be started: it is ready")


def _nodes(runs: StepRuns, run: Run) -> tuple[int, ...]:
    facts = runs.schedule.facts
    return tuple(facts.tasks[run.key]["nodes"]) if facts is not None and run.key else ()


def _named(run: Run) -> str:
    device = run.piece.event.device
    return run.name if device is None else f"device {device}: {run.name}"
