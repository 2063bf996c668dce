"""Advice in sentences, ordered by the time that replays of steps would save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from dpexec.viz.measured import intervals
from dpexec.viz.measured.activities import Activities, part_at
from dpexec.viz.measured.intervals import Interval
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.runs import Run
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import DeviceUse, StepTime, Wait, between
from dpexec.viz.measured.what_if import Effect, WhatIf
from dpexec.viz.pages.units import counted, percent, seconds_text

WORTH_SAYING = 0.03
"""The least share of a step for which there is a sentence."""

_AT_MOST = 8
_OF_ONE_CAUSE = 2
_OPERATORS = 3
_UNEVEN = 3.0  # times as much time between operators as on another device
_MOSTLY = 0.6  # of that time
_FUSED = "machine code (the extra: fast) and BuildStrategy.enable_auto_fusion make fewer of them"


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
        *_python(devices, what_if),
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
        most = 1 if wait.cause == "no_free_thread" else _OF_ONE_CAUSE  # one change ends them all
        if said[wait.cause] > most or wait.share < WORTH_SAYING:
            continue
        text = _text_of(wait, schedule, what_if)
        if text:
            saved = what_if.saved(_without(wait))
            yield Advice(_worth(text, saved), _nodes_of(wait, schedule), saved)


def _text_of(wait: Wait, schedule: Schedule, what_if: WhatIf) -> str:
    who = f"device {wait.device} waits {percent(wait.share)} of the step"
    where = "" if wait.on_device is None else f" of device {wait.on_device}"
    if wait.cause == "straggler" and wait.on_device is None:
        return (
            f"{who} for {wait.task}, whose values come last: see what else runs on its cores, or "
            "whether it gets more samples"
        )
    if wait.cause == "straggler":
        longer = f"takes {wait.ratio:.1f} times as long" if (wait.ratio or 0) > 1.05 else "is late"
        return f"{who} for device {wait.on_device}, whose {wait.task} {longer}: " + _why_late(
            wait, schedule
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
            f"are cores for them{_in_turns(schedule)}"
        )
    if wait.cause == "scheduler" and _is_held(wait, what_if):
        return ""  # which is said of all that waits for Python
    if wait.cause == "scheduler":
        return (
            f"{who} until {wait.task} starts, though it is ready and a thread is free: larger "
            "batches make this smaller"
        )
    return ""


def _is_held(wait: Wait, what_if: WhatIf) -> bool:
    """Whether a task began late because other threads ran Python."""
    held = late = 0.0
    for replay in what_if.replays:
        activities = replay.activities
        for at, one in enumerate(activities.all):
            if activities.is_first(at) and _is_of(wait, activities.runs.runs[one.run]):
                held += float(replay.held[at])
                late += activities.delays[at]
    return held > late / 2


def _why_late(wait: Wait, schedule: Schedule) -> str:
    """Why a straggler may be late: more rows, as far as the graph knows, or its core."""
    rows = schedule.facts.rows if schedule.facts else {}
    mine, its = rows.get(wait.device, {}), rows.get(wait.on_device or 0, {})
    for name, count in its.items():
        if name in mine and count > mine[name] > 0:
            return (
                f"it is fed {counted(count, 'row')} of {name}, and device {wait.device} "
                f"{mine[name]:,}: divide the batch evenly"
            )
    if mine and mine == its:
        return "it is fed as many rows, so see what else runs on its core"
    return "see what else runs on its core, or whether it gets more samples"


def _in_turns(schedule: Schedule) -> str:
    """Says so if most of the work is done by operators in Python, which threads do not divide."""
    in_python = schedule.facts.python if schedule.facts else frozenset()
    inside = (p for p in schedule.slices if p.depth == 1 and p.event.kind == "op")
    times = [(p.event.node in in_python, p.event.duration) for p in inside]
    whole = sum(seconds for _, seconds in times)
    share = sum(seconds for slow, seconds in times if slow) / whole if whole else 0.0
    if share < 0.5:
        return ""
    return (
        f" and operators are machine code: {percent(share)} of the work is done in Python, which a "
        "process does in one thread at a time; workers of a cluster do it side by side"
    )


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
        f"of its tasks{_turns(worst, devices, what_if) or f': {_FUSED}'}",
    )


def _python(devices: Sequence[DeviceUse], what_if: WhatIf) -> Iterator[Advice]:
    """What threads of a process wait for each other's Python, where the trace tells it."""
    worst = max(devices, key=lambda use: use.turn, default=None)
    if worst is None or worst.turn < WORTH_SAYING:
        return
    saved = what_if.saved(lambda replay: replay.without_turns())
    text = (
        f"device {worst.device} waits {percent(worst.turn)} of the step for Python of other "
        "threads, as a process runs it in one thread at a time: operators in machine code do not "
        "wait for it, and workers of a cluster do not wait for each other's"
    )
    yield Advice(_worth(text, saved), (), saved)


def _turns(worst: DeviceUse, devices: Sequence[DeviceUse], what_if: WhatIf) -> str:
    """Says so if a device waits, between its operators, while Python runs those of others.

    All devices have as many operators. If one of them spends far more time between them, while
    others are at work, it waits for the lock that only one thread of Python has at a time.
    """
    least = min(use.overhead for use in devices)
    shares = [share for step in what_if.steps if (share := _beside(step, worst.device)) is not None]
    if worst.overhead < _UNEVEN * least or not shares or median(shares) < _MOSTLY:
        return ""
    return (
        f", device {min(devices, key=lambda use: use.overhead).device} {percent(least)}; meanwhile "
        "operators of other devices run: those in Python take turns, as one thread of a process "
        "runs Python at a time. Workers of a cluster do not wait for each other, and operators in "
        "machine code do not either"
    )


def _beside(activities: Activities, device: int) -> float | None:
    """The share of the time between a device's operators in which other devices' operators ran."""
    idle: list[Interval] = []
    busy: list[Interval] = []
    schedule = activities.runs.schedule
    workers = {run.worker for run in activities.runs.runs} - {None}
    for one in activities.all:
        part, at = part_at(schedule, one), one.piece.event.device
        if at == device and part == "overhead":
            idle.append((one.start, one.stop))
        elif at is not None and at != device and part == "compute":
            busy.append((one.start, one.stop))
    length = intervals.length(intervals.union(idle))
    if not length or workers:  # workers of a cluster are processes
        return None
    both = intervals.common(intervals.union(idle), intervals.union(busy))
    return intervals.length(both) / length


def _part(what_if: WhatIf, part: str, text: str) -> Advice:
    def seconds(replay: Replay) -> float:
        schedule = replay.activities.runs.schedule
        activities = enumerate(replay.activities.all)
        return replay.each([[at for at, one in activities if part_at(schedule, one) == part]], 0)[0]

    saved = what_if.saved(seconds)
    return Advice(_worth(text, saved), (), saved)


def _operators(effects: Sequence[Effect], what_if: WhatIf) -> Iterator[Advice]:
    """The types of operators with the largest savings."""
    operators = (effect for effect in effects if effect.kind == "op")
    for effect in islice(operators, _OPERATORS):
        share = effect.half / what_if.seconds if what_if.seconds else 0.0
        takes = f"{effect.name} takes {seconds_text(effect.path)} of the critical path"
        if effect.frees_threads:
            takes += ", and other threads wait for its Python"
        if not effect.path:
            takes = f"other threads wait for Python of {effect.name}"
        yield Advice(
            f"{takes}; twice as fast, it makes a step {percent(share)} shorter "
            f"({seconds_text(what_if.seconds - effect.half)})",
            effect.nodes,
            share,
        )


# ---- causes that cannot be replayed


def _between_steps(steps: Sequence[StepTime]) -> Iterator[Advice]:
    share = between(steps)
    yield Advice(
        f"{percent(share)} of the whole time passes between the steps, outside of this program: "
        "other programs run, batches are read, or the script works; a DataLoader with "
        "use_double_buffer reads while steps run",
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
