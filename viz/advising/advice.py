"""Advice in sentences, ordered by the time that replays of steps would save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from statistics import median

from dpexec.viz.advising.apart import apart_advice
from dpexec.viz.advising.buckets import buckets_advice
from dpexec.viz.advising.tables import sparse_gradients, tables_advice
from dpexec.viz.advising.waits import (
    MOSTLY,
    WORTH_SAYING,
    Advice,
    waits_advice,
    worth,
)
from dpexec.viz.measured import intervals
from dpexec.viz.measured.activities import Activities, part_at
from dpexec.viz.measured.contention import contention
from dpexec.viz.measured.intervals import Interval
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import DeviceUse, StepTime, Wait
from dpexec.viz.measured.turns import asleep
from dpexec.viz.measured.what_if import Effect, WhatIf
from dpexec.viz.pages.units import percent, seconds_text

from dpexec.engine.graph.kinds import REDUCE

_AT_MOST = 8
_OPERATORS = 3
_UNEVEN = 3.0  # times as much time between operators as on another device
_FUSED = "machine code (the extra: fast) and BuildStrategy.enable_auto_fusion make fewer of them"


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
        *waits_advice(waits, schedule, what_if),
        *_devices(devices, what_if),
        *_python(devices, what_if),
        *buckets_advice(schedule, what_if),
        *tables_advice(schedule, what_if),
        *apart_advice(steps, schedule),
        *_too_few_cores(schedule, steps),
        *_operators(effects, what_if),
    ]
    found = [one for one in found if one.share >= WORTH_SAYING]
    return tuple(sorted(found, key=lambda one: -one.share)[:_AT_MOST])


# ---- the work of devices


def _devices(devices: Sequence[DeviceUse], what_if: WhatIf) -> Iterator[Advice]:
    if not devices:
        return
    schedule = what_if.schedule
    worst = max(devices, key=lambda use: use.communication)
    hidden = f" ({percent(worst.overlap)} of all its communication)" if worst.overlap else ""
    in_reduce_mode = schedule.trace.meta.get("mode") == REDUCE.name
    is_worse = in_reduce_mode or sparse_gradients(schedule)  # it would send whole tables
    spread = "" if is_worse else ", and Reduce mode spreads it"
    yield _part(
        what_if,
        "communication",
        f"communication that no computation hides{hidden} takes {percent(worst.communication)} of "
        f"the step of device {worst.device}: larger batches need it less often{spread}",
    )
    worst = max(devices, key=lambda use: use.data)
    yield from _data(worst, what_if)
    worst = max(devices, key=lambda use: use.overhead)
    yield _part(
        what_if,
        "overhead",
        f"device {worst.device} spends {percent(worst.overhead)} of the step between the operators "
        f"of its tasks{_turns(worst, devices, what_if) or f': {_between_operators(what_if)}'}",
    )


def _data(worst: DeviceUse, what_if: WhatIf) -> Iterator[Advice]:
    """Feeds and fetches, whichever of the two takes longer."""
    kinds = {"feed": "Feed", "fetch": "Fetch"}
    found = dict.fromkeys(kinds, 0.0)
    for step in what_if.steps:
        for one in step.all:
            if one.piece.event.kind in found:
                found[one.piece.event.kind] += one.stop - one.start
    both = "feeding and fetching take"
    share = f"{percent(worst.data)} of the step of device {worst.device}"
    most = max(found, key=found.__getitem__)
    remedy = "let a DataLoader prepare batches: its thread divides and copies them"
    if most == "fetch":
        remedy = "fetch fewer or smaller variables; larger batches fetch less often"
        if what_if.schedule.trace.meta.get("scheduler") == "distributed":
            remedy = (
                "from the last task to the answer, workers also store parameters that they "
                "received; larger batches, or fewer and smaller fetched variables, take less of it"
            )
    remedy = contention(what_if.schedule).why_late or remedy
    part = found[most] / sum(found.values()) if any(found.values()) else 0.0
    yield _part(what_if, "data", f"{both} {share}, {percent(part)} of it {kinds[most]}: {remedy}")


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
    yield Advice(worth(text, saved), (), saved)


def _turns(worst: DeviceUse, devices: Sequence[DeviceUse], what_if: WhatIf) -> str:
    """Says so if a device waits, between its operators, while Python runs those of others.

    All devices have as many operators. If one of them spends far more time between them, while
    others are at work, it waits for the lock that only one thread of Python has at a time.
    """
    least = min(use.overhead for use in devices)
    shares = [share for step in what_if.steps if (share := _beside(step, worst.device)) is not None]
    if worst.overhead < _UNEVEN * least or not shares or median(shares) < MOSTLY:
        return ""
    return (
        f", device {min(devices, key=lambda use: use.overhead).device} {percent(least)}; meanwhile "
        "operators of other devices run: those in Python take turns, as one thread of a process "
        "runs Python at a time. Workers of a cluster do not wait for each other, and operators in "
        "machine code do not either"
    )


def _between_operators(what_if: WhatIf) -> str:
    """The cause of time between operators, else what makes less of it."""
    return contention(what_if.schedule).why_late or _FUSED


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
    return Advice(worth(text, saved), (), saved)


def _operators(effects: Sequence[Effect], what_if: WhatIf) -> Iterator[Advice]:
    """The types of operators with the largest savings."""
    operators = (effect for effect in effects if effect.kind == "op")
    for effect in islice(operators, _OPERATORS):
        share = effect.half / what_if.seconds if what_if.seconds else 0.0
        takes = f"{effect.name} takes {seconds_text(effect.path)} of the critical path"
        idle = asleep(what_if.steps, effect.name)
        if idle >= MOSTLY:
            takes += (
                f"; for {percent(idle)} of its time it has no processor: it sleeps, waits for a "
                "file or a lock, or other programs have the processors"
            )
        elif effect.frees_threads:
            takes += ", and other threads wait for its Python"
        if not effect.path:
            takes = f"other threads wait for Python of {effect.name}"
        yield Advice(
            f"{takes}; twice as fast, it makes a step {percent(share)} shorter "
            f"({seconds_text(what_if.seconds - effect.half)}){_made_at(effect, what_if)}",
            effect.nodes,
            share,
        )


def _made_at(effect: Effect, what_if: WhatIf) -> str:
    """The user's line that makes operators of a type, if one makes most of them, by their time."""
    schedule, facts = what_if.schedule, what_if.schedule.facts
    if facts is None:
        return ""
    found = Counter[str]()
    for piece in (schedule.by_id[index] for step in schedule.middle for index in step.slices):
        node = schedule.node_of(piece)
        if piece.event.kind == "op" and piece.event.name == effect.name and node is not None:
            found[str(facts.by_id[node]["line"] or "")] += piece.own
    if not found or not found.total():
        return ""
    line, seconds = found.most_common(1)[0]
    share = seconds / found.total()
    if not line or share < MOSTLY:
        return ""
    return f"; made at {line}" if len(found) == 1 else f"; {percent(share)} of it made at {line}"


# ---- causes that cannot be replayed


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
