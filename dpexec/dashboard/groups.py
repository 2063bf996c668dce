"""Groups of tasks in the steps of each worker: how often they ran and how long they took.

Tasks known to dask's scheduler are counted one by one. It does not see the steps of a gang, so the
gang's members report them (:mod:`dpexec.engine.cluster.worker.step_groups`).
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dask.utils import key_split

from dpexec.dashboard.reports import Sample, Slice
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.light_dataclasses import dataclass, field

__all__ = ["Group", "Member", "Members", "show_in_task_stream", "show_time_by_prefix"]

_WINDOW = 10.0  # seconds that means cover
_MARK = 0.25  # seconds between two kept totals
_LEFT = 16  # workers that have left, kept per training
_STEPS = 32  # steps whose spans are kept until all members have reported

_STEP = re.compile(r"([0-9a-f]{8})-\d+-(\d+)")  # the end of the keys of a step's tasks


@dataclass(slots=True)
class Group:
    """Tasks of one name.

    Args:
        runs: number of tasks that ran.
        seconds: total duration of these tasks.
    """

    runs: float = 0.0
    seconds: float = 0.0

    def add(self, runs: float, seconds: float) -> None:
        """Add runs and seconds."""
        self.runs += runs
        self.seconds += seconds


@dataclass(slots=True)
class Member:
    """The steps on one worker.

    Args:
        name: name of the worker.
        steps: number of steps.
        every: one of ``every`` steps was measured.
        at: time of its last report, in seconds since 1970.
        left: time when it left the cluster; None while it is there.
        groups: groups of tasks of all steps, by name, in order of first appearance.
        running: number of a step that takes long, and its seconds so far; None if there is none.
        latest: number of the latest step with a task known to dask's scheduler.
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
        """Add completed or started steps.

        Args:
            steps: number of steps to add.
            groups: seconds and runs in these steps, by name.
            now: current time, in seconds since 1970.
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
        """The latest steps: their number, their seconds, and their groups of tasks."""
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
    """The workers of trainings, by the prefix of a run's tags and by address.

    Args:
        scheduler: dask's scheduler.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._known: LimitedCache[str, dict[str, Member]] = LimitedCache(
            limit_of("trainings on dashboards")
        )
        self._measured: LimitedCache[str, _MeasuredSteps] = LimitedCache(
            limit_of("trainings on dashboards")
        )

    @property
    def tags(self) -> set[str]:
        """The prefixes of the tasks' keys of all known trainings."""
        return set(self._known)

    def of(self, tag: str) -> dict[str, Member]:
        """The workers of a training; the returned objects are updated later.

        Args:
            tag: prefix of its tasks' keys.
        """
        return self._known.setdefault(tag, {})

    def _member(self, tag: str, worker: str) -> Member:
        members = self.of(tag)
        if worker not in members:
            state = self._scheduler.workers.get(worker)
            members[worker] = Member(str(worker if state is None else state.name))
        return members[worker]

    def count(self, key: tuple[Any, ...], facts: Mapping[str, Any]) -> None:
        """Count a task known to dask's scheduler, if it belongs to a step.

        Args:
            key: key of the task.
            facts: what dask reports to plugins when it ends.
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
        """Store the report of a gang's member; returns the steps that all members have reported.

        Args:
            worker: address of the worker.
            told: the report, see :meth:`StepGroups.take`.
        """
        member = self._member(told["tag"], worker)
        member.left, member.running = None, told["running"]
        member.add(told["steps"], told["groups"], time.time())
        member.every = max([span[3] for span in told["spans"]], default=member.every)
        measured = self._measured.setdefault(told["tag"], _MeasuredSteps())
        return list(measured.take(worker, told["spans"], told["members"]))

    def leave(self, worker: str) -> None:
        """Note that a worker has left the cluster.

        Args:
            worker: address of the worker.
        """
        for members in self._known.values():
            if worker in members:
                members[worker].left, members[worker].running = time.time(), None
                gone = [address for address, member in members.items() if member.left is not None]
                for address in gone[:-_LEFT]:
                    del members[address]


class _MeasuredSteps:
    """Spans of measured steps, kept until all members have reported."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, dict[str, list[Any]]] = OrderedDict()

    def take(self, address: str, spans: Sequence[Sequence[Any]], of: int) -> Iterator[Sample]:
        """Store a member's measurements.

        Args:
            address: address of its worker.
            spans: see :meth:`StepGroups.take`.
            of: number of members.

        Yields:
            Steps that all members have measured.
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
    """A step as a sample of a report."""
    first = min(span[4] for span in spans)
    last = max(span[5] for span in spans)
    slices: list[Slice] = [
        [device, "", "task", key.rpartition("-")[0], key, start - first, stop - first]
        for key, device, _, _, start, stop in spans
    ]
    return {"step": step + 1, "seconds": last - first, "slices": slices, "left_out": 0}


# ---- on dask's own pages


def show_in_task_stream(scheduler: Any, worker: str, told: Mapping[str, Any]) -> None:
    """Show measured steps in dask's task stream, if there is one; each replica has a row.

    Args:
        scheduler: dask's scheduler.
        worker: address of the reporting worker.
        told: the report, see :meth:`StepGroups.take`.
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
    """Add the groups' times to dask's times of tasks, which it shows by prefix.

    Args:
        scheduler: dask's scheduler.
        groups: seconds and runs, by name.
    """
    from distributed.scheduler import TaskPrefix

    for name, (seconds, runs) in groups.items():
        prefix = scheduler.task_prefixes.get(name)
        if prefix is None:
            prefix = scheduler.task_prefixes[name] = TaskPrefix(name)
        prefix.add_duration("compute", 0.0, seconds)
        prefix.duration_average = seconds / max(runs, 1.0)  # per task
