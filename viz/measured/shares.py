"""How the time of steps was spent: by devices, in waits, and between steps."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from dpexec.viz.measured.schedule import Schedule, Step

Cause = Literal["dependency", "straggler", "no_free_thread", "scheduler", "unknown"]

CAUSES: tuple[Cause, ...] = get_args(Cause)

APART = ("meetings", "preparing", "reading")
"""What happens between steps and is not the script's, by its name in a trace."""

_CALL = 40e-6  # seconds that a call of `run` takes beside its step, at most

PathPart = Literal[
    "compute", "communication", "data", "overhead", "turn", "straggler", "scheduler", "unknown"
]
"""The kinds of time on the critical path. Nothing on it waits for results, except for those of
processes that are not in the trace; these are stragglers."""


@dataclass(frozen=True)
class DeviceUse:
    """How a device spent the time of a step, in fractions that add up to 1: means over steps.

    Args:
        device: Index of the device.
        compute: It ran operators.
        communication: It took part in a collective or a transfer, and ran no operator.
        data: It was fed or fetched from.
        overhead: It was inside a task, between operators.
        turn: It was at work, and its thread waited for Python of other threads of the process.
        dependency: It waited for a result.
        straggler: It waited for another device that took longer for the same.
        no_free_thread: A task was ready, but all threads were busy.
        scheduler: A task was ready and a thread was free.
        unknown: It waited; the trace has no graph that would tell for what.
        overlap: The share of its communication during which it also ran operators; None without
            communication.
    """

    device: int
    compute: float
    communication: float
    data: float
    overhead: float
    turn: float
    dependency: float
    straggler: float
    no_free_thread: float
    scheduler: float
    unknown: float
    overlap: float | None

    @property
    def idle(self) -> float:
        """The fraction of time for which it waited."""
        return sum(getattr(self, cause) for cause in CAUSES)

    @property
    def parts(self) -> dict[str, float]:
        """The fractions by name."""
        names = ("compute", "communication", "data", "overhead", "turn", *CAUSES)
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Wait:
    """The time that a device waited for one thing.

    Args:
        device: The waiting device.
        cause: The cause.
        seconds: The duration, over the steps that are analysed.
        share: The share of a step, the mean over these steps.
        task: The awaited task, or the name of an event.
        on_device: Device of the awaited task; None if it belongs to all devices.
        ratio: For a straggler: how many times longer than the waiting device it took.
    """

    device: int
    cause: Cause
    seconds: float
    share: float
    task: str
    on_device: int | None
    ratio: float | None = None


@dataclass(frozen=True)
class StepTime:
    """The time of a step.

    Args:
        step: Its number.
        seconds: Seconds from its first event to its last.
        gap: Seconds until the next step began; None after the last one.
        met: Seconds of the gap in which it waited for other trainers to begin the next step.
        prepared: Seconds of the gap in which the next step was prepared for a batch of a new shape.
        read: Seconds of the gap in which it waited for the next batch to be read.
    """

    step: int
    seconds: float
    gap: float | None
    met: float = 0.0
    prepared: float = 0.0
    read: float = 0.0


def homes_of(schedule: Schedule) -> dict[int, str]:
    """Return by device the worker of a cluster that runs it, in words for behind the device.

    Of a device that moved, it is the latest one.
    """
    if schedule.trace.meta.get("scheduler") != "distributed":
        return {}
    return schedule.once(("homes", 0), lambda: _homes(schedule))


def _homes(schedule: Schedule) -> dict[int, str]:
    found: dict[int, str] = {}
    for event in schedule.trace.events:
        if event.device is not None and "worker" in event.args:
            found[event.device] = f" (worker {event.args['worker']})"
    return found


def by_operator(schedule: Schedule, steps: Iterable[Step], device: int | None) -> Counter[str]:
    """Return the seconds of a device in some steps by type of operator, waits included."""
    found: Counter[str] = Counter()
    for piece in (schedule.by_id[index] for step in steps for index in step.slices):
        if piece.event.kind == "op" and piece.event.device == device:
            found[piece.event.name] += piece.own
    return found


def between(steps: Sequence[StepTime]) -> float:
    """Return the share of the whole time that the script takes between some steps."""
    gaps = sum((step.gap or 0.0) - step.met - step.prepared - step.read for step in steps)
    return _of_all(gaps, steps)


def in_calls(steps: Sequence[StepTime]) -> bool:
    """Whether the time between steps is so short that calls of `run` themselves take it."""
    gaps = [s.gap - s.met - s.prepared - s.read for s in steps if s.gap is not None]
    return bool(gaps) and statistics.median(gaps) < _CALL


def meeting(steps: Sequence[StepTime]) -> float:
    """Return the share of the whole time in which a trainer waits for others to begin steps."""
    return _of_all(sum(step.met for step in steps), steps)


def preparing(steps: Sequence[StepTime]) -> float:
    """Return the share of the whole time in which steps are prepared for batches of new shapes."""
    return _of_all(sum(step.prepared for step in steps), steps)


def reading(steps: Sequence[StepTime]) -> float:
    """Return the share of the whole time in which steps wait for batches to be read."""
    return _of_all(sum(step.read for step in steps), steps)


def _of_all(seconds: float, steps: Sequence[StepTime]) -> float:
    whole = sum(step.seconds + (step.gap or 0.0) for step in steps)
    return seconds / whole if whole else 0.0


def apart(schedule: Schedule, start: float, stop: float) -> float:
    """Return the seconds of a span between steps that are not the script's."""
    return sum(during(schedule, start, stop, what) for what in APART)


def during(schedule: Schedule, start: float, stop: float, what: str) -> float:
    """Return the seconds of a span with something of `APART`, as the trace tells them."""
    spans = schedule.trace.meta.get(what) or ()
    return sum(max(0.0, min(end, stop) - max(begun, start)) for begun, end in spans)
