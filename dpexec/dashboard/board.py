"""The content of a page: the reports of a training, merged, with bounded size."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from statistics import median

from dpexec.dashboard.groups import Member
from dpexec.dashboard.reports import Box, Current, Report, Sample

__all__ = ["Board", "Boards", "Series"]

_RUNS = 8  # the most boards that are kept
_POINTS = 400  # the most points of a curve
_DURATIONS = 31  # latest durations of a task, for its median
_SLOW = 1.5  # a task is slow if it takes this many times its median
_NOTABLE = 0.02  # share of the step; shorter tasks are never called slow


class Series:
    """Points of a curve; when there are too many, every other point is dropped.

    Args:
        most: largest number of points.

    Example:
        >>> series = Series(4)
        >>> for x in range(8):
        ...     series.add(x, x * x)
        >>> series.points
        [(0, 0), (4, 16), (6, 36), (7, 49)]
    """

    def __init__(self, most: int = _POINTS) -> None:
        self.most = most
        self.points: list[tuple[float, float]] = []

    def add(self, x: float, y: float) -> None:
        """Append a point."""
        self.points.append((x, y))
        if len(self.points) > self.most:
            self.points = self.points[:-1:2] + self.points[-1:]


class Board:
    """The state of one training, according to its reports.

    Attributes:
        run: name of the reported run.
        devices: the places that train.
        boxes: the tasks of a step.
        loss: points (step, loss), of the fetched variable ``loss_name``.
        steps_a_second: points (seconds since the first report, rate); likewise
            ``samples_a_second`` and ``bytes_a_second``.
        step_seconds: mean duration of the steps in the latest report; not of all steps, since the
            first ones are slow because kernels are compiled.
        sample: the latest recorded step; it arrived at ``sampled``.
        recorded: of recorded steps, the seconds, and those of them in which no task ran.
        current: the running step, if it takes long.
        memory: (bytes, limit or None) by process; set by the code that shows the board.
        members: groups of tasks in each worker's steps, by address; set from outside.
    """

    def __init__(self) -> None:
        self.run = ""
        self._clear()

    def _clear(self) -> None:
        self.devices: list[str] = []
        self.mode = self.loss_name = ""
        self.trains = False
        self.boxes: list[Box] = []
        self.steps = self.failed = self.samples = self.bytes = 0
        self.seconds = self.step_seconds = 0.0
        self.loss = Series()
        self.steps_a_second = Series()
        self.samples_a_second = Series()
        self.bytes_a_second = Series()
        self.sample: Sample | None = None
        self.current: Current | None = None
        self.memory: dict[str, tuple[int, int | None]] = {}
        self.members: Mapping[str, Member] = {}
        self.durations: dict[str, deque[float]] = {}
        self.recorded: deque[tuple[float, float]] = deque(maxlen=_DURATIONS)
        self.first = self.updated = self.last_step = self.sampled = 0.0

    def apply(self, report: Report) -> None:
        """Merge a report; a report of another run resets the board.

        Args:
            report: a monitor's report.
        """
        if report["run"] != self.run:
            self._clear()
            self.run = report["run"]
            self.first = report["time"]
        self.devices, self.mode = list(report["devices"]), report["mode"]
        self.trains, self.loss_name = report["trains"], report["loss_name"]
        if report["graph"] is not None:
            if _keys(report["graph"]) != _keys(self.boxes):  # else only the batch size changed
                self.durations.clear()
                self.recorded.clear()
            self.boxes = report["graph"]
        self._rates(report)
        self.steps, self.failed = report["steps"], report["failed"]
        self.samples, self.bytes = report["samples"], report["bytes"]
        self.seconds = report["seconds"]
        for step, loss in report["loss"]:
            self.loss.add(step, loss)
        if report["sample"] is not None:
            self.take_sample(report["sample"])
        self.current = report["current"]
        self.updated = report["time"]

    def _rates(self, report: Report) -> None:
        elapsed = report["time"] - (self.updated or report["time"])
        fresh = report["steps"] - self.steps
        if not fresh:
            return
        self.step_seconds = (report["seconds"] - self.seconds) / fresh
        if elapsed > 0:
            x = report["time"] - self.first
            self.steps_a_second.add(x, fresh / elapsed)
            self.samples_a_second.add(x, (report["samples"] - self.samples) / elapsed)
            self.bytes_a_second.add(x, (report["bytes"] - self.bytes) / elapsed)
        self.last_step = report["time"]

    def take_sample(self, sample: Sample, instead: bool = True) -> None:
        """Show another recorded step.

        Args:
            sample: the step; durations of its tasks count for medians.
            instead: whether it replaces the previous sample.
        """
        if instead:
            self.sample, self.sampled = sample, time.time()
        self.recorded.append((sample["seconds"], _idle(sample)))
        for _, _, kind, _, key, start, stop in sample["slices"]:
            if kind == "task":
                kept = self.durations.setdefault(key, deque(maxlen=_DURATIONS))
                kept.append(stop - start)

    def tasks_of(self, name: str) -> list[str]:
        """The tasks of the plan that a dask task runs.

        Args:
            name: name of the dask task, which ends with the tasks' numbers.
        """
        numbers = name.split("-")[1:]
        keys = {key.rpartition("-")[2]: key for box in self.boxes for key in box["keys"]}
        return [keys[number] for number in numbers if number in keys] or [name]

    def state(self, box: Box) -> str:
        """The current state of a box: ``"waiting"``, ``"running"``, ``"done"`` or ``"unknown"``.

        Args:
            box: one of :attr:`boxes`.
        """
        if self.current is None:
            return "done" if any(key in self.durations for key in box["keys"]) else "unknown"
        done = self.current["done"]
        if done is None:
            return "unknown"
        if all(key in done for key in box["keys"]):
            return "done"
        running = self.current["running"]
        if running is None:  # not reported: boxes run whose earlier rows are done
            earlier = (b for b in self.boxes if b["row"] < box["row"] and _touch(b, box))
            ready = all(key in done for b in earlier for key in b["keys"])
            return "running" if ready else "waiting"
        return "running" if any(key in running for key in box["keys"]) else "waiting"

    def seconds_of(self, box: Box) -> float | None:
        """The duration of a box's tasks in the latest sample.

        Args:
            box: one of :attr:`boxes`.

        Returns:
            Seconds; None if none of its tasks has been recorded.
        """
        found = [self.durations[key][-1] for key in box["keys"] if key in self.durations]
        return sum(found) if found else None

    def slowdown(self, box: Box) -> float | None:
        """The ratio of a box's duration to its median, if it is remarkably slow.

        Args:
            box: one of :attr:`boxes`.

        Returns:
            The ratio; None if the duration is normal, or too short to matter.
        """
        known = [self.durations[key] for key in box["keys"] if len(self.durations.get(key, ())) > 4]
        if not known or self.sample is None:
            return None
        latest, usual = sum(d[-1] for d in known), sum(median(d) for d in known)
        notable = latest > _SLOW * usual and latest > _NOTABLE * self.sample["seconds"]
        return latest / usual if notable else None

    @property
    def is_idle(self) -> bool:
        """Whether no step is running and none has ended for some seconds."""
        return self.current is None and time.time() - self.last_step > 3.0


def _idle(sample: Sample) -> float:
    """The seconds of a recorded step in which no task ran."""
    idle, end = sample["seconds"], 0.0
    for start, stop in sorted(tuple(row[5:]) for row in sample["slices"] if row[2] == "task"):
        idle -= max(0.0, stop - max(start, end))
        end = max(end, stop)
    return idle


class Boards(OrderedDict[str, Board]):
    """The boards of all reporting trainings, by run; the one with the latest report is last."""

    def take(self, report: Report) -> Board:
        """Merge a report; if there are too many boards, the oldest is dropped.

        Args:
            report: a monitor's report.

        Returns:
            The board of its run.
        """
        board = self.setdefault(report["run"], Board())
        self.move_to_end(report["run"])
        if len(self) > _RUNS:
            self.popitem(last=False)
        board.apply(report)
        return board

    @property
    def latest(self) -> Board:
        """The board of the run with the latest report; an empty board before the first report."""
        return next(reversed(self.values()), None) or Board()


def _keys(boxes: Sequence[Box]) -> list[list[str]]:
    """The keys that distinguish the tasks of a plan from those of other plans."""
    return [box["keys"] for box in boxes]


def _touch(one: Box, other: Box) -> bool:
    """Whether two boxes share a lane."""
    return one["device"] is None or other["device"] is None or one["device"] == other["device"]
