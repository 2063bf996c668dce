"""The measured critical path: the longest chain of work that had to happen one after another.

Operators are ordered by the graph's dependencies and by the threads they ran on; a chain is as
long as its operators took. What it takes less than the step is waiting and scheduling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from dpexec.viz.measured.runs import StepRuns, runs_of
from dpexec.viz.measured.schedule import Schedule, Slice, Step


@dataclass(frozen=True)
class CriticalPath:
    """The critical path of a step.

    Args:
        step: Number of the step.
        seconds: How long its operators took together.
        step_seconds: How long the step took.
        slices: ids of its slices, in order.
        nodes: Their operators in the graph, where known.
        slack: By slice: the seconds that it may take longer without making the path longer.
    """

    step: int
    seconds: float
    step_seconds: float
    slices: tuple[int, ...]
    nodes: tuple[int, ...]
    slack: Mapping[int, float]

    @property
    def share(self) -> float:
        """Of the step: 1 means that nothing ever waited."""
        return self.seconds / self.step_seconds if self.step_seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "step": self.step,
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "share": self.share,
            "slices": list(self.slices),
            "nodes": list(self.nodes),
            "slack": {str(index): value for index, value in self.slack.items()},
        }


def longest_path(
    durations: Sequence[float], before: Sequence[Sequence[int]]
) -> tuple[list[int], list[float]]:
    """Find the longest path of a graph of work, and how much longer everything may take.

    Args:
        durations: How long each piece of work takes.
        before: By piece: those that must end before it starts.

    Returns:
        The pieces of a longest path in order, and for each piece the length of the longest path
        less that of the longest path through it.

    Raises:
        ValueError: The pieces wait for each other in a circle.
    """
    order, after = _in_order(before)
    until = [0.0] * len(durations)  # the longest path that ends with the piece
    for index in order:
        until[index] = durations[index] + max((until[s] for s in before[index]), default=0.0)
    since = [0.0] * len(durations)  # the longest path that starts with it
    for index in reversed(order):
        since[index] = durations[index] + max((since[f] for f in after[index]), default=0.0)
    longest = max(until, default=0.0)
    slack = [
        max(0.0, longest - (a + b - own)) for a, b, own in zip(until, since, durations, strict=True)
    ]
    path = []
    at = max(order, key=until.__getitem__, default=None)
    while at is not None:
        path.append(at)
        at = max(before[at], key=until.__getitem__, default=None)
    return path[::-1], slack


def _in_order(before: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """All pieces, each behind those it waits for, and by piece those that wait for it."""
    after: list[list[int]] = [[] for _ in before]
    waiting = [len(set(sources)) for sources in before]
    for index, sources in enumerate(before):
        for source in set(sources):
            after[source].append(index)
    order = [index for index, count in enumerate(waiting) if not count]
    for index in order:
        for following in after[index]:
            waiting[following] -= 1
            if not waiting[following]:
                order.append(following)
    if len(order) < len(before):
        raise ValueError("the events contradict the graph of the trace: they wait in a circle")
    return order, after


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
    work, before = _work(runs_of(schedule, step))
    path, slack = longest_path([piece.own for piece in work], before)
    nodes = (node for index in path for node in schedule.nodes_of(work[index]))
    return CriticalPath(
        step=step.number,
        seconds=sum(work[index].own for index in path),
        step_seconds=step.seconds,
        slices=tuple(work[index].id for index in path),
        nodes=tuple(dict.fromkeys(nodes)),
        slack={piece.id: value for piece, value in zip(work, slack, strict=True)},
    )


def _work(runs: StepRuns) -> tuple[list[Slice], list[list[int]]]:
    """The pieces of work of a step in order of their start, and what each has to come after."""
    schedule = runs.schedule
    pieces = (schedule.by_id[index] for index in runs.step.slices)
    work = [piece for piece in pieces if piece.is_leaf_work]
    position = {piece.id: index for index, piece in enumerate(work)}
    before: list[list[int]] = [[] for _ in work]
    threads: dict[int, list[int]] = {}
    for index, piece in enumerate(work):
        threads.setdefault(piece.event.thread, []).append(index)
    for row in threads.values():
        for earlier, later in pairwise(row):
            before[later].append(earlier)
    for earlier, later in (*_data_order(schedule, work), *_task_order(runs, position)):
        if earlier < later:  # clocks of several machines may say something else
            before[later].append(earlier)
    return work, before


def _data_order(schedule: Schedule, work: Sequence[Slice]) -> list[tuple[int, int]]:
    if schedule.facts is None:
        return []
    ends: dict[int, dict[int, tuple[int, int]]] = {}  # by operator and thread: first and last
    for index, piece in enumerate(work):
        node = schedule.node_of(piece)
        if node is not None:
            threads = ends.setdefault(node, {})
            first, _ = threads.get(piece.event.thread, (index, index))
            threads[piece.event.thread] = first, index
    return [
        (last, first)
        for node, threads in ends.items()
        for source in schedule.facts.before.get(node, ())
        for _, last in ends.get(source, {}).values()
        for first, _ in threads.values()
    ]


def _task_order(runs: StepRuns, position: Mapping[int, int]) -> list[tuple[int, int]]:
    ends: dict[int, tuple[int, int]] = {}
    for index, run in enumerate(runs.runs):
        stack, inside = [run.piece], []
        while stack:
            part = stack.pop()
            inside += [position[part.id]] if part.id in position else []
            stack += runs.parts.get(part.id, ())
        if inside:
            ends[index] = min(inside), max(inside)
    return [
        (ends[source][1], ends[index][0])
        for index, sources in enumerate(runs.before)
        for source in sources
        if index in ends and source in ends
    ]
