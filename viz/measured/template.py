"""The structure of a recorded step, independent of the number of devices.

A device computes segments one after another; buckets of gradients are aggregated as soon as the
segments that make them are done on all devices; then parameters are updated. Feeding comes before
and fetching after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dpexec.viz.measured import intervals
from dpexec.viz.measured.intervals import Interval
from dpexec.viz.measured.runs import Run, StepRuns, runs_of
from dpexec.viz.measured.schedule import Schedule

from dpexec.engine.compile.plans.bucket_size import THREADS
from dpexec.engine.graph.kinds import COMPUTE, KINDS, MODES, Kind
from dpexec.engine.trace import Trace

_MEETING = (*MODES, *(kind.name for kind in KINDS.values() if kind.copies))
"""The collectives that are supported; if a task has several, the first one counts."""


@dataclass(frozen=True)
class Work:
    """A task without its waits.

    Args:
        seconds: Its duration on a core of its own.
        delay: Seconds from the moment at which it was ready and its thread was free to its start.
    """

    seconds: float
    delay: float


@dataclass(frozen=True)
class Bucket:
    """Gradients that are aggregated together.

    Args:
        bytes: Their size on one device.
        after: Number of segments of each device that come before it.
        parts: The tasks that did the aggregation; empty with a single device.
    """

    bytes: int
    after: int
    parts: tuple[Work, ...]


@dataclass(frozen=True)
class Template:
    """One recorded step.

    Args:
        measured: The recorded duration in seconds.
        feed: The work before the tasks.
        fetch: The work after the tasks.
        segments: By device, the segments of forward and backward.
        updates: By device, the work of the optimizer.
        buckets: The gradients.
        broadcasts: The tasks that sent parameters from their owners.
        joins: When each thread began its first task, in seconds after the feeds; empty if devices
            have their own threads.
    """

    measured: float
    feed: Work
    fetch: Work
    segments: tuple[tuple[Work, ...], ...]
    updates: tuple[Work, ...]
    buckets: tuple[Bucket, ...]
    broadcasts: tuple[Work, ...]
    joins: tuple[float, ...]


def threads_of(trace: Trace) -> float:
    """How many tasks could run at the same time; unlimited for the workers of a cluster."""
    scheduler, number = trace.meta.get("scheduler"), trace.meta.get("num_threads")
    if scheduler == "sync":
        return 1.0
    return math.inf if scheduler == "distributed" or not number else float(number)


def cores_of(trace: Trace) -> float:
    """The number of cores that the recorded devices shared."""
    places = str(trace.meta.get("places", ""))
    if trace.meta.get("scheduler") == "distributed" or "CUDA" in places:
        return math.inf
    return float(trace.meta.get("cpus") or math.inf)


def templates(schedule: Schedule, cores: float, threads: float) -> tuple[Template, ...]:
    """Take the steps of a trace apart.

    Args:
        schedule: A trace with its graph.
        cores: Number of cores that the recorded devices shared; infinity if each had its own.
        threads: Number of threads that may have run tasks; infinity if devices had their own.

    Raises:
        ValueError: The trace lacks the dependencies of its tasks, or has collectives between the
            segments of a device, so that it cannot be taken apart.
    """
    facts = schedule.facts
    if facts is None or not facts.tasks:
        raise ValueError(
            "the trace holds no tasks of a graph: what they wait for must be known to replay it"
        )
    kinds = {node["kind"] for node in facts.nodes}
    others = kinds.difference(_MEETING, (k.name for k in KINDS.values() if not k.is_collective))
    if others:
        raise ValueError(
            f"a network with {', '.join(sorted(others))} cannot be replayed on other devices: "
            f"supported are those whose devices meet in {', '.join(_MEETING)} alone"
        )
    steps = [runs_of(schedule, step) for step in schedule.counted]
    whole = [step for step in steps if {run.key for run in step.runs} >= set(facts.tasks)]
    if not whole:
        raise ValueError("no step of the trace ran all tasks of its graph")
    return tuple(_Taken(step, cores, threads).template() for step in whole)


class _Taken:
    """One step, being taken apart."""

    def __init__(self, runs: StepRuns, cores: float, threads: float) -> None:
        assert runs.schedule.facts is not None
        self.runs, self.facts = runs, runs.schedule.facts
        times = [(run.start, run.stop) for run in runs.runs]
        self._free = _free(runs.runs) if math.isfinite(threads) else []
        self._crowds = _crowds(times, cores)
        self._ready = [
            max((runs.runs[i].stop for i in sources), default=runs.step.start)
            for sources in runs.before
        ]
        self._kind = {key: self._kind_of(key) for key in self.facts.tasks}
        self._feed = self._fetch = Work(0.0, 0.0)
        self._segments: dict[int, list[Work]] = {device: [] for device in self.facts.devices}
        self._updates = dict.fromkeys(self.facts.devices, Work(0.0, 0.0))
        self._aggregations: dict[str, list[Work]] = {}  # by task
        self._places: dict[str, int] = {}  # by task, the number of its device's segments up to it
        self._broadcasts: list[Work] = []

    def _kind_of(self, key: str) -> Kind:
        kinds = [self.facts.by_id[node]["kind"] for node in self.facts.tasks[key]["nodes"]]
        return KINDS[next((kind for kind in _MEETING if kind in kinds), COMPUTE.name)]

    def _work(self, index: int) -> Work:
        """A run's time on a core, and its delay."""
        run = self.runs.runs[index]
        seconds = run.stop - run.start
        for missed, crowd in self._crowds:
            seconds -= missed * intervals.within(crowd, run.start, run.stop)
        return Work(seconds, self._delay(index))

    def _delay(self, index: int) -> float:
        """Seconds from the moment at which a run was ready and its thread was free to its start.

        The first run on a thread has no delay, because the thread joined late.
        """
        run, ready = self.runs.runs[index], self._ready[index]
        if self._free and not run.is_data:
            free = self._free[index]
            ready = run.start if free is None else max(ready, free)
        return max(0.0, run.start - ready)

    def _joins(self) -> tuple[float, ...]:
        runs = self.runs.runs
        fed = max((run.stop for run in runs if run.is_feed), default=self.runs.step.start)
        first = [
            run.start
            for run, free in zip(runs, self._free, strict=False)
            if free is None and not run.is_data
        ]
        return tuple(max(0.0, start - fed) for start in first)

    def template(self) -> Template:
        for index, run in enumerate(self.runs.runs):
            self._take(run, self._work(index))
        segments, buckets = self._segments, self._buckets()
        if not buckets and len(segments) == 1:
            segments, buckets = self._cut(segments)
        return Template(
            self.runs.step.seconds,
            self._feed,
            self._fetch,
            tuple(tuple(segments[device]) for device in self.facts.devices),
            tuple(self._updates[device] for device in self.facts.devices),
            buckets,
            tuple(self._broadcasts),
            self._joins(),
        )

    def _take(self, run: Run, work: Work) -> None:
        """Sort a run into segments, updates, aggregations, broadcasts, feeds or fetches."""
        kind = None if run.key is None else self._kind[run.key]
        if run.is_data:
            self._feed, self._fetch = _add_data(self._feed, self._fetch, run, work)
        elif run.key is not None and kind is not None and kind.of_gradients:
            self._aggregations.setdefault(run.key, []).append(work)
        elif kind is not None and kind.copies:
            self._broadcasts.append(work)
        elif run.piece.event.device is not None:
            self._take_segment(run, run.piece.event.device, work)

    def _take_segment(self, run: Run, device: int, work: Work) -> None:
        """Divide a task of a device between computation and updates."""
        share = self._update_share(run)
        if share < 1:
            self._segments[device].append(Work(work.seconds * (1 - share), work.delay))
            if run.key is not None:
                self._places[run.key] = len(self._segments[device])
            work = Work(work.seconds, 0.0)
        if share:
            before = self._updates[device]
            seconds = before.seconds + work.seconds * share
            self._updates[device] = Work(seconds, before.delay + work.delay)

    def _update_share(self, run: Run) -> float:
        """The share of a task that is the optimizer's work."""
        times = {True: 0.0, False: 0.0}
        for piece in self.runs.parts.get(run.piece.id, ()):
            role = self.runs.schedule.role_of(piece)
            times[role == "optimize"] += piece.event.duration
        if not any(times.values()):
            return float(self.runs.schedule.role_of(run.piece) == "optimize")
        return times[True] / (times[True] + times[False])

    def _buckets(self) -> tuple[Bucket, ...]:
        """The buckets, in the order in which they are complete; those of all owners form one."""
        found: dict[int, tuple[int, list[Work]]] = {}
        for key, works in self._aggregations.items():
            task = self.facts.tasks[key]
            size = sum(
                self.facts.output_bytes(node)
                for node in task["nodes"]
                if self.facts.by_id[node]["kind"] in MODES
            )
            after = max((self._places.get(key, 0) for key in task["after"]), default=0)
            bytes_, all_works = found.setdefault(after, (0, []))
            found[after] = bytes_ + size, [*all_works, *works]
        return tuple(
            Bucket(size, after, tuple(works)) for after, (size, works) in sorted(found.items())
        )

    def _cut(
        self, segments: dict[int, list[Work]]
    ) -> tuple[dict[int, list[Work]], tuple[Bucket, ...]]:
        """Cut the segment of a single device where several devices would aggregate gradients."""
        made = self._gradients()
        total = sum(size for _, size in made)
        buckets: list[Bucket] = []
        shares = []
        filled, rest, least = 0, total, THREADS.bucket_bytes
        for share, size in made:
            filled, rest = filled + size, rest - size
            if filled >= least and rest > least // 2:
                shares.append(share)
                buckets.append(Bucket(filled, len(shares), ()))
                filled = 0
        if filled:
            buckets.append(Bucket(filled, len(shares) + 1, ()))
        (device,) = segments
        whole = sum(work.seconds for work in segments[device])
        delay = sum(work.delay for work in segments[device])
        edges = [0.0, *shares, 1.0]
        cut = [Work((b - a) * whole, 0.0 if a else delay) for a, b in pairwise(edges)]
        return {device: cut}, tuple(buckets)

    def _gradients(self) -> list[tuple[float, int]]:
        """When each gradient for the optimizer is made, as a share of the computation."""
        facts = self.facts
        wanted = {
            var
            for node in facts.nodes
            if node["role"] == "optimize"
            for var in node["inputs"]
            if facts.vars[var]["name"].endswith("@GRAD")
        }
        at = 0.0
        done: list[tuple[float, int]] = []
        for piece in (self.runs.schedule.by_id[i] for i in self.runs.step.slices):
            role = self.runs.schedule.role_of(piece)
            if piece.event.kind != "op" or role == "optimize":
                continue
            at += piece.own
            for node in self.runs.schedule.nodes_of(piece):
                sizes = (
                    facts.vars[v]["bytes"] for v in facts.by_id[node]["outputs"] if v in wanted
                )
                done += [(at, size or 0) for size in sizes]
        return [(moment / at if at else 1.0, size) for moment, size in done]


def _add_data(feed: Work, fetch: Work, run: Run, work: Work) -> tuple[Work, Work]:
    if run.is_feed:
        return Work(feed.seconds + work.seconds, 0.0), fetch
    return feed, Work(fetch.seconds + work.seconds, max(fetch.delay, work.delay))


def _free(runs: Sequence[Run]) -> list[float | None]:
    """By position of a run: the end of its thread's previous task; None if there is none."""
    ended: dict[int, float] = {}
    found = []
    for run in runs:
        thread = run.piece.event.thread
        found.append(ended.get(thread))
        if not run.is_data:
            ended[thread] = run.stop
    return found


def _crowds(times: Sequence[Interval], cores: float) -> list[tuple[float, list[Interval]]]:
    """The share of a core that every task loses, and when, because more tasks run than cores.

    While n > c tasks run, each gets c/n of a core: it loses c/(m-1) - c/m for every m from c+1 to
    n.
    """
    found: list[tuple[float, list[Interval]]] = []
    number = int(cores) + 1 if math.isfinite(cores) else 0
    while number:
        crowd = intervals.at_least(times, number)
        if not crowd:
            break
        found.append((cores / (number - 1) - cores / number, crowd))
        number += 1
    return found
