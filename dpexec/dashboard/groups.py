"""What steps consist of, by worker: groups of tasks, how often they ran and how long they took.

Tasks that dask's scheduler knows are counted one by one. Of the steps of a gang it knows nothing:
their members tell (:mod:`dpexec.engine.cluster.worker.step_groups`).
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dask.utils import key_split

from dpexec.dashboard.reports import Sample, Slice
from dpexec.engine.core.cache import LimitedCache

__all__ = ["Group", "Member", "Members", "show_in_task_stream", "show_time_by_prefix"]

_WINDOW = 10.0  # seconds: means are over those
_MARK = 0.25  # seconds between what is known of the time before
_TRAININGS = 16  # whose workers are known
_LEFT = 16  # of the workers of a training that have left
_STEPS = 32  # whose spans are kept until all members have told theirs

_STEP = re.compile(r"([0-9a-f]{8})-\d+-(\d+)")  # what the keys of a step's tasks end with


@dataclass(slots=True)
class Group:
    """Tasks of one name.

    Args:
        runs: how many ran.
        seconds: how long all of them took.
    """

    runs: float = 0.0
    seconds: float = 0.0

    def add(self, runs: float, seconds: float) -> None:
        """So many more ran."""
        self.runs += runs
        self.seconds += seconds


@dataclass(slots=True)
class Member:
    """What is known of the steps on one worker.

    Args:
        name: of the worker.
        steps: how many it made.
        every: one in so many was measured; 1: all.
        at: when it was last heard of, in seconds since 1970.
        left: when it left the cluster; None: it is there.
        groups: what ran in all steps, by name, in the order in which it was first seen.
        running: number of the step that takes long and since how many seconds; None: none does.
        latest: number of the latest step of which dask's scheduler knew a task.
    """

    name: str
    steps: int = 0
    every: int = 1
    at: float = 0.0
    left: float | None = None
    groups: dict[str, Group] = field(default_factory=dict)
    running: tuple[int, float] | None = None
    latest: int = -1
    _marks: deque[tuple[float, int, dict[str, Group]]] = field(default_factory=deque)

    def add(self, steps: int, groups: Mapping[str, Sequence[float]], now: float) -> None:
        """So many more steps were made, or begun.

        Args:
            steps: how many.
            groups: seconds and runs in them, by name.
            now: in seconds since 1970.
        """
        self.steps += steps
        for name, (seconds, runs) in groups.items():
            self.groups.setdefault(name, Group()).add(runs, seconds)
        self.at = now
        if not self._marks or now - self._marks[-1][0] > _MARK:
            while self._marks and now - self._marks[0][0] > _WINDOW:
                self._marks.popleft()
            known = {name: Group(found.runs, found.seconds) for name, found in self.groups.items()}
            self._marks.append((now, self.steps, known))

    def lately(self) -> tuple[int, float, dict[str, Group]]:
        """The last steps: how many, in how many seconds, and what ran in them."""
        if not self._marks:
            return 0, 0.0, {}
        since, steps, before = self._marks[0]
        found = {}
        for name, group in self.groups.items():
            known = before.get(name, Group())
            if group.runs > known.runs:
                found[name] = Group(group.runs - known.runs, group.seconds - known.seconds)
        return self.steps - steps, self.at - since, found


class Members:
    """The workers of trainings, by the beginning of a run's token and by address.

    Args:
        scheduler: that of dask.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._known: LimitedCache[str, dict[str, Member]] = LimitedCache(_TRAININGS)
        self._measured: LimitedCache[str, _MeasuredSteps] = LimitedCache(_TRAININGS)

    def of(self, tag: str) -> dict[str, Member]:
        """The workers of a training; what is known of them changes.

        Args:
            tag: what keys of its tasks begin with.
        """
        return self._known.setdefault(tag, {})

    def _member(self, tag: str, worker: str) -> Member:
        members = self.of(tag)
        if worker not in members:
            state = self._scheduler.workers.get(worker)
            members[worker] = Member(str(worker if state is None else state.name))
        return members[worker]

    def count(self, key: tuple[Any, ...], facts: Mapping[str, Any]) -> None:
        """Count a task that dask's scheduler knows, if it is of a step.

        Args:
            key: of the task.
            facts: what dask tells plugins of its end.
        """
        found = _STEP.fullmatch(str(key[-1]))
        if found is None:
            return
        member, number = self._member(found[1], facts["worker"]), int(found[2])
        spans = [s for s in facts.get("startstops") or () if s["action"] == "compute"]
        seconds = sum(span["stop"] - span["start"] for span in spans)
        member.add(int(number > member.latest), {key_split(key): (seconds, 1)}, time.time())
        member.latest, member.every = max(number, member.latest), 1

    def take(self, worker: str, told: Mapping[str, Any]) -> list[Sample]:
        """Take in what a member of a gang tells; returns steps of which now all have told.

        Args:
            worker: its address.
            told: see :meth:`StepGroups.take`.
        """
        member = self._member(told["tag"], worker)
        member.left, member.running = None, told["running"]
        member.add(told["steps"], told["groups"], time.time())
        member.every = max([span[3] for span in told["spans"]], default=member.every)
        measured = self._measured.setdefault(told["tag"], _MeasuredSteps())
        return list(measured.take(worker, told["spans"], told["members"]))

    def leave(self, worker: str) -> None:
        """A worker has left the cluster.

        Args:
            worker: its address.
        """
        for members in self._known.values():
            if worker in members:
                members[worker].left, members[worker].running = time.time(), None
                gone = [address for address, member in members.items() if member.left is not None]
                for address in gone[:-_LEFT]:
                    del members[address]


class _MeasuredSteps:
    """The spans of steps that members measured, until all of them have told theirs."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, dict[str, list[Any]]] = OrderedDict()

    def take(self, address: str, spans: Sequence[Sequence[Any]], of: int) -> Iterator[Sample]:
        """Take in what a member measured.

        Args:
            address: of its worker.
            spans: see :meth:`StepGroups.take`.
            of: how many members there are.

        Yields:
            Steps that all of them measured.
        """
        for span in spans:
            parts = self._steps.setdefault(span[2], {})
            parts.setdefault(address, []).append(span)
        for step in sorted({span[2] for span in spans}):
            if len(self._steps[step]) >= of:
                yield _sample(step, [s for part in self._steps.pop(step).values() for s in part])
        while len(self._steps) > _STEPS:
            self._steps.popitem(last=False)


def _sample(step: int, spans: Sequence[Sequence[Any]]) -> Sample:
    """A step in the form of a report's sample."""
    first = min(span[4] for span in spans)
    last = max(span[5] for span in spans)
    slices: list[Slice] = [
        [device, "", "task", key.rpartition("-")[0], key, start - first, stop - first]
        for key, device, _, _, start, stop in spans
    ]
    return {"step": step + 1, "seconds": last - first, "slices": slices, "left_out": 0}


# ---- on dask's own pages


def show_in_task_stream(scheduler: Any, worker: str, told: Mapping[str, Any]) -> None:
    """Show measured steps in dask's task stream, if it is kept; each replica has a row.

    Args:
        scheduler: that of dask.
        worker: address of who told.
        told: see :meth:`StepGroups.take`.
    """
    stream = scheduler.plugins.get("task-stream")
    if stream is None:
        return

    def show(name: str, text: str, lane: str, status: str, start: float, stop: float) -> None:
        span = {"action": "compute", "start": start, "stop": stop}
        where = {"worker": worker, "thread": lane, "status": status}
        stream.transition((name, text), "processing", "memory", startstops=[span], **where)

    tag = told["tag"]
    for key, device, step, every, start, stop in told["spans"]:
        lane = "collectives" if device is None else f"dev{device}"
        which = "" if every == 1 else f", one of {every} steps"
        show(key, f"{tag}-{step}{which}", lane, "OK", start, stop)
    for name, step, start, stop, why in told["failed"]:
        show(name, f"{tag}-{step}, {why}", "failed", "error", start, stop)


def show_time_by_prefix(scheduler: Any, groups: Mapping[str, Sequence[float]]) -> None:
    """Count the time of groups where dask counts that of its tasks, which it shows by prefix.

    Args:
        scheduler: that of dask.
        groups: seconds and runs, by name.
    """
    from distributed.scheduler import TaskPrefix

    for name, (seconds, runs) in groups.items():
        prefix = scheduler.task_prefixes.get(name)
        if prefix is None:
            prefix = scheduler.task_prefixes[name] = TaskPrefix(name)
        prefix.add_duration("compute", 0.0, seconds)
        prefix.duration_average = seconds / max(runs, 1.0)  # that of one task, not of all of them
