"""Where the time of a run went: the work of each device, and the causes of its waits.

At every moment a device computes, communicates, handles feeds and fetches, is between the
operators of a task, or waits; at work, it may wait for Python of other threads. The cause of a wait
is found backwards from the task that ends it. While that task was ready, it waited
for a thread or the scheduler. Before that, it waited for the task that it depended on last; the
search continues with that task. If the waiting device has already done its twin of that task, the
other device is a straggler.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from dpexec.viz.advising.advice import advice
from dpexec.viz.advising.waits import Advice
from dpexec.viz.measured import intervals
from dpexec.viz.measured.activities import activities_of, part_at
from dpexec.viz.measured.critical_path import CriticalPath, critical_path
from dpexec.viz.measured.intervals import Interval
from dpexec.viz.measured.runs import Run, StepRuns, runs_of
from dpexec.viz.measured.schedule import COMMUNICATION, DATA, Schedule, Step
from dpexec.viz.measured.shares import APART, CAUSES, Cause, DeviceUse, StepTime, Wait, during
from dpexec.viz.measured.traffic import Traffic, traffic
from dpexec.viz.measured.turns import turns_of
from dpexec.viz.measured.typical import Typical
from dpexec.viz.measured.what_if import Effect, what_if

from dpexec.engine.trace import Trace


@dataclass(frozen=True)
class Analysis:
    """Where the time of a run went.

    Args:
        steps: The duration of each step.
        left_out: The number of slow first steps, which all other figures leave out.
        median: Seconds of the median step.
        spread: Median distance of the counted steps from the median.
        devices: The use of each device, in the middle half of the counted steps.
        waits: The waits in these steps, longest first.
        path: The critical path of the typical step.
        traffic: The bytes that a step moved.
        effects: How much shorter a step would be if types of operators were faster; the same for
            layers, if the trace has them.
        advice: The advice, with the largest saving first.
    """

    steps: tuple[StepTime, ...]
    left_out: int
    median: float
    spread: float
    devices: tuple[DeviceUse, ...]
    waits: tuple[Wait, ...]
    path: CriticalPath
    traffic: Traffic
    effects: tuple[Effect, ...]
    advice: tuple[Advice, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "steps": [asdict(step) for step in self.steps],
            "left_out": self.left_out,
            "median": self.median,
            "spread": self.spread,
            "devices": [asdict(use) for use in self.devices],
            "waits": [asdict(wait) for wait in self.waits],
            "critical_path": self.path.to_json(),
            "traffic": self.traffic.to_json(),
            "effects": [asdict(effect) for effect in self.effects],
            "advice": [asdict(one) for one in self.advice],
        }


def analysis_of(trace: Trace | Schedule, steps: Iterable[int] | None = None) -> Analysis:
    """Analyse where the time of a trace went.

    Args:
        trace: The trace; causes of waiting are known only if it has its graph.
        steps: Numbers of the steps to analyse; None for all except slow first ones.

    Raises:
        ValueError: The trace is empty, or has no such step.
    """
    schedule = Schedule.of(trace, steps)
    chosen, middle = schedule.counted, schedule.middle
    found = [_StepAnalysis(runs_of(schedule, step)) for step in middle]
    devices = _uses(schedule, found)
    waits = _waits(found)
    times = _step_times(schedule)
    usual = Typical.of([step.seconds for step in chosen])
    replays = what_if(schedule)
    types = replays.effects("type")
    layers = replays.effects("layer") if schedule.facts is not None else ()
    return Analysis(
        steps=times,
        left_out=len(times) - len(chosen),
        median=usual.median,
        spread=usual.spread,
        devices=devices,
        waits=waits,
        path=critical_path(schedule),
        traffic=traffic(schedule),
        effects=(*types, *layers),
        advice=advice(schedule, times[-len(chosen) :], devices, waits, replays, types),
    )


def device_uses(schedule: Schedule, steps: Sequence[Step]) -> tuple[DeviceUse, ...]:
    """Return how each device spent its time during some steps of a schedule."""
    return _uses(schedule, [_StepAnalysis(runs_of(schedule, step)) for step in steps])


def _uses(schedule: Schedule, steps: Sequence[_StepAnalysis]) -> tuple[DeviceUse, ...]:
    return tuple(_use(device, steps) for device in schedule.devices)


def _step_times(schedule: Schedule) -> tuple[StepTime, ...]:
    pairs = [*pairwise(schedule.steps)]
    gaps: list[float | None] = [b.start - a.stop for a, b in pairs]
    others = [tuple(during(schedule, a.stop, b.start, what) for what in APART) for a, b in pairs]
    return tuple(
        StepTime(step.number, step.seconds, gap, *other)
        for step, gap, other in zip(schedule.steps, [*gaps, None], [*others, ()], strict=True)
    )


def _use(device: int, steps: Sequence[_StepAnalysis]) -> DeviceUse:
    shares: dict[str, float] = {}
    moved = hidden = 0.0
    for step in steps:
        seconds = dict(step.seconds_of(device))
        moved += seconds.pop("all communication")
        hidden += seconds.pop("hidden communication")
        for name, value in seconds.items():
            shares[name] = shares.get(name, 0.0) + step.share(value) / len(steps)
    return DeviceUse(device=device, overlap=hidden / moved if moved else None, **shares)


def _waits(steps: Sequence[_StepAnalysis]) -> tuple[Wait, ...]:
    found: dict[tuple[int, Cause, str, int | None], list[tuple[float, float, float | None]]] = {}
    for step in steps:
        for device, cause, seconds, run, ratio in step.waits:
            name = run if isinstance(run, str) else run.name if run else "the next task"
            on_device = run.piece.event.device if isinstance(run, Run) else None
            part = seconds, step.share(seconds), ratio
            found.setdefault((device, cause, name, on_device), []).append(part)
    waits = []
    for (device, cause, name, other), parts in found.items():
        seconds = sum(seconds for seconds, _, _ in parts)
        share = sum(share for _, share, _ in parts) / len(steps)
        ratios = [ratio for _, _, ratio in parts if ratio is not None]
        ratio = statistics.median(ratios) if ratios else None
        waits.append(Wait(device, cause, seconds, share, name, other, ratio))
    return tuple(sorted(waits, key=lambda wait: -wait.share))


def _threads(schedule: Schedule) -> int:
    """The number of tasks that could run at the same time; workers of a cluster are not counted."""
    meta = schedule.trace.meta
    if meta.get("scheduler") == "sync":
        return 1
    if meta.get("scheduler") == "distributed":
        return len(schedule.slices) + 1
    return int(meta.get("num_threads") or len({track.thread for track in schedule.tracks}))


_Found = tuple[int, Cause, float, Run | str | None, float | None]
"""Device, cause, seconds, the awaited run (or name of a process), and a straggler's ratio."""


class _StepAnalysis:
    """The use of the devices during one step."""

    def __init__(self, runs: StepRuns) -> None:
        self.runs = runs
        self.window = runs.step.start, runs.step.stop
        self.waits: list[_Found] = []
        times = [(run.start, run.stop) for run in runs.runs]
        self._full = intervals.at_least(times, _threads(runs.schedule))
        ends = [run.stop for run in runs.runs]
        self._ready = [
            max((ends[i] for i in sources), default=self.window[0]) for sources in runs.before
        ]

    def share(self, seconds: float) -> float:
        """Return a time as a share of the step."""
        whole = self.runs.step.seconds
        return seconds / whole if whole else 0.0

    def seconds_of(self, device: int) -> Iterator[tuple[str, float]]:
        """The seconds of a device by kind, which add up to the step; then its communication."""
        busy: list[Interval] = []
        kinds = self._kinds(device)
        sums = dict.fromkeys(CAUSES, 0.0)
        turns = self._turns(device)
        for name in ("compute", "communication", "data"):
            together = intervals.union([*busy, *kinds[name]])
            seconds = intervals.length(together) - intervals.length(busy)
            turns[name] = min(turns.get(name, 0.0), seconds)
            yield name, seconds - turns[name]
            busy = together
        for other, times in self._others(device).items():
            together = intervals.union([*busy, *times])
            seconds = intervals.length(together) - intervals.length(busy)
            sums["straggler"] += seconds
            self.waits.append((device, "straggler", seconds, other, None))
            busy = together
        together = intervals.union([*busy, *kinds["overhead"]])
        seconds = intervals.length(together) - intervals.length(busy)
        turns["overhead"] = min(turns.get("overhead", 0.0), seconds)
        yield "overhead", seconds - turns["overhead"]
        busy = together
        for start, stop in intervals.gaps(busy, self.window):
            for cause, seconds, run, ratio in self._why(device, start, stop):
                sums[cause] += seconds
                self.waits.append((device, cause, seconds, run, ratio))
        held = min(self._held(device), sums["scheduler"])
        sums["scheduler"] -= held
        yield "turn", sum(turns.values()) + held
        yield from sums.items()
        hidden = intervals.common(kinds["compute"], kinds["communication"])
        yield "all communication", intervals.length(kinds["communication"])
        yield "hidden communication", intervals.length(hidden)

    def _kinds(self, device: int) -> dict[str, list[Interval]]:
        found: dict[str, list[Interval]] = {
            name: [] for name in ("compute", "communication", "data", "overhead")
        }
        for run in self.runs.runs:
            if device not in run.devices:
                continue
            inside = [run.piece, *self.runs.parts.get(run.piece.id, ())]
            for piece in inside:
                event = piece.event
                if event.kind in COMMUNICATION:
                    name = "communication"
                elif event.kind in DATA:
                    name = "data"
                elif event.kind == "op":
                    name = "compute"
                elif piece.is_leaf_work:  # a task of which no operators were recorded
                    collective = self.runs.schedule.role_of(piece) == "collective"
                    name = "communication" if collective else "compute"
                else:
                    name = "overhead"
                waited = event.args.get("waited", 0.0) if name == "communication" else 0.0
                found[name].append((min(event.stop, event.start + waited), event.stop))
        return {name: intervals.union(times) for name, times in found.items()}

    def _turns(self, device: int) -> dict[str, float]:
        """By kind: seconds of a device's work in which it waited for Python of other threads."""
        schedule, step = self.runs.schedule, self.runs.step
        activities = activities_of(schedule, step)
        inside = turns_of(activities).inside(len(activities.all))
        found: dict[str, float] = {}
        for at in inside.nonzero()[0]:
            one = activities.all[at]
            if one.piece.event.device == device:
                part = part_at(schedule, one)
                found[part] = found.get(part, 0.0) + float(inside[at])
        return found

    def _held(self, device: int) -> float:
        """Seconds for which tasks of a device did not begin, as other threads ran Python."""
        activities = activities_of(self.runs.schedule, self.runs.step)
        before = turns_of(activities).before(len(activities.all))
        first = (at for at in before.nonzero()[0] if activities.is_first(int(at)))
        return sum(
            float(before[at]) for at in first if activities.all[at].piece.event.device == device
        )

    def _others(self, device: int) -> dict[str, list[Interval]]:
        """By process that is not in the trace: when collectives waited for it."""
        found: dict[str, list[Interval]] = {}
        for one in activities_of(self.runs.schedule, self.runs.step).all:
            if one.waits_for is not None and device in self.runs.runs[one.run].devices:
                found.setdefault(one.waits_for, []).append((one.start, one.stop))
        return {other: intervals.union(times) for other, times in found.items()}

    def _why(
        self, device: int, start: float, stop: float
    ) -> Iterator[tuple[Cause, float, Run | None, float | None]]:
        """The causes of a wait that ended with a run of the device, or with the step."""
        runs = self.runs.runs
        if not self.runs.is_ordered:
            yield "unknown", stop - start, None, None
            return
        following = (i for i, run in enumerate(runs) if device in run.devices)
        at = next((i for i in following if runs[i].start >= stop), None)
        sources: Sequence[int] = range(len(runs)) if at is None else ()
        while stop > start:
            ready = self.window[0]
            if at is not None:
                ready, sources = self._ready[at], self.runs.before[at]
            else:
                ready = stop  # nothing is left to run on the device: it waits for the last one
            begun = max(start, min(ready, stop))
            yield from self._late(begun, stop, None if at is None else runs[at])
            stop = begun
            if stop <= start:
                break
            at = max(sources, key=lambda i: runs[i].stop)
            begun = max(start, min(stop, runs[at].start))
            if begun < stop:
                yield self._waiting_for(runs[at], device, begun, stop)
            stop = begun

    def _late(
        self, start: float, stop: float, run: Run | None
    ) -> Iterator[tuple[Cause, float, Run | None, float | None]]:
        full = intervals.within(self._full, start, stop)
        if full > 0:
            yield "no_free_thread", full, run, None
        if stop - start - full > 0:
            yield "scheduler", stop - start - full, run, None

    def _waiting_for(
        self, run: Run, device: int, start: float, stop: float
    ) -> tuple[Cause, float, Run, float | None]:
        twin = self.runs.twin(run, device)
        if twin is not None and twin is not run and twin.stop <= start:
            took = twin.stop - twin.start
            return "straggler", stop - start, run, (run.stop - run.start) / took if took else None
        return "dependency", stop - start, run, None
