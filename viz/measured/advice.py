"""Advice in sentences, ordered by the time that replays of steps would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from dpexec.viz.measured import intervals
from dpexec.viz.measured.activities import part_at
from dpexec.viz.measured.replay import Replay, Times
from dpexec.viz.measured.runs import Run
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import DeviceUse, StepTime, Wait
from dpexec.viz.measured.what_if import Effect, WhatIf
from dpexec.viz.pages.units import percent, seconds_text

WORTH_SAYING = 0.03
"""The least share of a step for which there is a sentence."""

_AT_MOST = 8
_OF_ONE_CAUSE = 2
_OPERATORS = 3
_FUSED = "machine code (the `fast` extra) and BuildStrategy.enable_auto_fusion make fewer of them"


@dataclass(frozen=True)
class Advice:
    """A piece of advice.

    Args:
        text: A sentence.
        nodes: The operators of the graph that it mentions, if any.
        share: The share of a step that the change saves in replays. For changes that cannot be
            replayed, the share of time that the cause takes.
    """

    text: str
    nodes: tuple[int, ...]
    share: float

    def __str__(self) -> str:
        return self.text


def advice(
    schedule: Schedule,
    steps: Sequence[StepTime],
    devices: Sequence[DeviceUse],
    waits: Sequence[Wait],
    what_if: WhatIf,
    effects: Sequence[Effect],
) -> tuple[Advice, ...]:
    """Return advice, with the largest saving first.

    Each change is replayed by itself; two of them together may save less than their sum.

    Args:
        schedule: The trace.
        steps: The counted steps.
        devices: The use of each device in them.
        waits: The waits, longest first.
        what_if: Replays of steps.
        effects: The savings by faster types of operators.
    """
    found = [
        *_waits(waits, schedule, what_if),
        *_devices(devices, what_if),
        *_between_steps(steps),
        *_too_few_cores(schedule, steps),
        *_operators(effects, what_if),
    ]
    found = [one for one in found if one.share >= WORTH_SAYING]
    return tuple(sorted(found, key=lambda one: -one.share)[:_AT_MOST])


# ---- waits


def _waits(waits: Sequence[Wait], schedule: Schedule, what_if: WhatIf) -> Iterator[Advice]:
    said: dict[str, int] = {}
    for wait in waits:
        said[wait.cause] = said.get(wait.cause, 0) + 1
        if said[wait.cause] > _OF_ONE_CAUSE or wait.share < WORTH_SAYING:
            continue
        text = _text_of(wait, schedule)
        if text:
            saved = what_if.saved(_without(wait))
            yield Advice(_worth(text, saved), _nodes_of(wait, schedule), saved)


def _text_of(wait: Wait, schedule: Schedule) -> str:
    who = f"device {wait.device} waits {percent(wait.share)} of the step"
    where = "" if wait.on_device is None else f" of device {wait.on_device}"
    if wait.cause == "straggler" and wait.on_device is None:
        return (
            f"{who} for {wait.task}, whose values come last: see what else runs on its cores, or "
            "whether it gets more samples"
        )
    if wait.cause == "straggler":
        longer = f"takes {wait.ratio:.1f} times as long" if (wait.ratio or 0) > 1.05 else "is late"
        return (
            f"{who} for device {wait.on_device}, whose {wait.task} {longer}: see what else "
            "runs on its core, or whether it gets more samples"
        )
    if wait.cause == "dependency":
        return f"{who} for {wait.task}{where}, whose result it needs"
    if wait.cause == "no_free_thread":
        threads = schedule.trace.meta.get("num_threads")
        now = f" (now {threads})" if threads else ""
        change = f"raise ExecutionStrategy.num_threads{now}"
        if schedule.trace.meta.get("scheduler") == "sync":
            change = 'ExecutionStrategy.scheduler = "threads" has more than one'
        return (
            f"{who} for a thread that could start {wait.task}: all are at work; {change}, if there "
            "are cores for them"
        )
    if wait.cause == "scheduler":
        return (
            f"{who} until {wait.task} starts, though it is ready and a thread is free: larger "
            "batches make this smaller"
        )
    return ""


def _worth(text: str, saved: float) -> str:
    return f"{text}; without that a step takes {percent(saved)} less"


def _nodes_of(wait: Wait, schedule: Schedule) -> tuple[int, ...]:
    """The operators of the task that a device waited for; the wait has its name without number."""
    tasks = schedule.facts.tasks.values() if schedule.facts else ()
    named = [task["nodes"] for task in tasks if task["key"].partition("-")[0] == wait.task]
    return tuple(node for nodes in named for node in nodes)


def _without(wait: Wait) -> Callable[[Replay], float]:
    """A function that replays a step without a wait; returns the step's seconds."""

    def seconds(replay: Replay) -> float:
        if wait.cause == "no_free_thread":
            return Replay(replay.activities, free_threads=True).seconds()
        runs = replay.activities.runs
        times, delays = replay.recorded.copy(), list(replay.activities.delays)
        for at, one in enumerate(replay.activities.all):
            run = runs.runs[one.run]
            if one.waits_for is not None and one.waits_for == wait.task:
                times[at] = 0.0
            if not _is_of(wait, run):
                continue
            if wait.cause == "dependency":
                times[at] = 0.0
                continue
            delays[at] = min(0.0, delays[at])
            if wait.cause == "straggler":
                twin = runs.twin(run, wait.device)
                took = run.stop - run.start
                if twin is not None and took:
                    times[at] *= min(1.0, (twin.stop - twin.start) / took)
        return replay.seconds(times, delays)

    return seconds


def _is_of(wait: Wait, run: Run) -> bool:
    return run.name == wait.task and run.piece.event.device == wait.on_device


# ---- the work of devices


def _devices(devices: Sequence[DeviceUse], what_if: WhatIf) -> Iterator[Advice]:
    if not devices:
        return
    worst = max(devices, key=lambda use: use.communication)
    hidden = f" ({percent(worst.overlap)} of all its communication)" if worst.overlap else ""
    yield _part(
        what_if,
        "communication",
        f"communication that no computation hides{hidden} takes {percent(worst.communication)} of "
        f"the step of device {worst.device}: larger batches need it less often, and Reduce mode "
        "spreads it",
    )
    worst = max(devices, key=lambda use: use.data)
    yield _part(
        what_if,
        "data",
        f"feeding and fetching take {percent(worst.data)} of the step of device {worst.device}: "
        "fetch less often, and let a DataLoader prepare batches",
    )
    worst = max(devices, key=lambda use: use.overhead)
    yield _part(
        what_if,
        "overhead",
        f"device {worst.device} spends {percent(worst.overhead)} of the step between the operators "
        f"of its tasks: {_FUSED}",
    )


def _part(what_if: WhatIf, part: str, text: str) -> Advice:
    def seconds(replay: Replay) -> float:
        schedule = replay.activities.runs.schedule
        times: Times = replay.recorded.copy()
        for at, one in enumerate(replay.activities.all):
            if part_at(schedule, one) == part:
                times[at] = 0.0
        return replay.seconds(times)

    saved = what_if.saved(seconds)
    return Advice(_worth(text, saved), (), saved)


def _operators(effects: Sequence[Effect], what_if: WhatIf) -> Iterator[Advice]:
    """The types of operators with the largest savings."""
    operators = (effect for effect in effects if effect.kind == "op")
    for effect in islice(operators, _OPERATORS):
        share = effect.half / what_if.seconds if what_if.seconds else 0.0
        yield Advice(
            f"{effect.name} takes {seconds_text(effect.path)} of the critical path; twice as fast, "
            f"it makes a step {percent(share)} shorter "
            f"({seconds_text(what_if.seconds - effect.half)})",
            effect.nodes,
            share,
        )


# ---- causes that cannot be replayed


def _between_steps(steps: Sequence[StepTime]) -> Iterator[Advice]:
    gaps = sum(step.gap or 0.0 for step in steps)
    whole = gaps + sum(step.seconds for step in steps)
    share = gaps / whole if whole else 0.0
    yield Advice(
        f"{percent(share)} of the whole time passes between the steps, outside of the network: a "
        "DataLoader with use_double_buffer reads while the step runs",
        (),
        share,
    )


def _too_few_cores(schedule: Schedule, steps: Sequence[StepTime]) -> Iterator[Advice]:
    meta = schedule.trace.meta
    cores, places = meta.get("cpus"), meta.get("places") or ()
    if not cores or meta.get("scheduler") == "distributed" or "CUDA" in str(places):
        return
    first = steps[0].step if steps else 0
    outer = [p for p in schedule.slices if p.depth == 0 and p.event.step >= first]
    times = [(p.event.start, p.event.stop) for p in outer]
    crowded = intervals.length(intervals.at_least(times, cores + 1))
    share = crowded / sum(step.seconds for step in steps) if crowded else 0.0
    yield Advice(
        f"during {percent(share)} of the step more tasks run than there are processors ({cores}), "
        f"which slows all of them: {cores} replicas would do as much",
        (),
        share,
    )
