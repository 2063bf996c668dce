"""Advice on waits: for a straggler, a result, a thread, or the scheduler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dpexec.viz.measured.contention import CROWDED, MOST, contention
from dpexec.viz.measured.copies import copies_of
from dpexec.viz.measured.replay import Replay
from dpexec.viz.measured.runs import Run
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import Wait, by_operator, homes_of
from dpexec.viz.measured.what_if import WhatIf
from dpexec.viz.pages.units import counted, percent, seconds_text

WORTH_SAYING = 0.03
"""The least share of a step for which there is a sentence."""

MOSTLY = 0.6
"""The least share of a time of which one thing is the cause."""

_OF_ONE_CAUSE = 2
_ALONE = 2.0  # times as much as others, so that an operator is the cause


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


def waits_advice(waits: Sequence[Wait], schedule: Schedule, what_if: WhatIf) -> Iterator[Advice]:
    """Give advice on waits.

    Args:
        waits: The waits, longest first.
        schedule: The trace.
        what_if: Replays of steps.
    """
    said: Counter[tuple[str, bool]] = Counter()
    for wait in waits:
        for_thread = wait.cause == "no_free_thread" or (
            wait.cause == "scheduler" and _is_mostly(wait, what_if, _in_turn)
        )
        said[wait.cause, for_thread] += 1
        most = 1 if for_thread else _OF_ONE_CAUSE  # one change ends them all
        if said[wait.cause, for_thread] > most or wait.share < WORTH_SAYING:
            continue
        text = _text_of(wait, schedule, what_if, for_thread)
        if text:
            saved = what_if.saved(_without(wait, for_thread))
            yield Advice(worth(text, saved), _nodes_of(wait, schedule), saved)


def _text_of(wait: Wait, schedule: Schedule, what_if: WhatIf, for_thread: bool) -> str:
    who = f"device {wait.device} waits {percent(wait.share)} of the step"
    homes = homes_of(schedule)
    other = (
        "" if wait.on_device is None else f"device {wait.on_device}" + homes.get(wait.on_device, "")
    )
    where = f" of {other}" if other else ""
    if wait.cause == "straggler" and wait.on_device is None:
        return (
            f"{who} for {wait.task}, whose values come last: see what else runs on its cores, or "
            "whether it gets more samples"
        )
    if wait.cause == "straggler":
        longer = f"takes {wait.ratio:.1f} times as long" if (wait.ratio or 0) > 1.05 else "is late"
        return f"{who} for {other}, whose {wait.task} {longer}: " + _why_late(wait, schedule)
    if wait.cause == "dependency":
        return f"{who} for {wait.task}{where}, whose result it needs"
    if wait.cause == "no_free_thread":
        threads = schedule.trace.meta.get("num_threads")
        now = f" (now {threads})" if threads else ""
        change = f"raise ExecutionStrategy.num_threads{now}"
        if schedule.trace.meta.get("scheduler") == "sync":
            change = 'ExecutionStrategy.scheduler = "threads" has more than one'
        if crowd := _crowd(schedule):
            return f"{who} until {wait.task} starts, though it is ready: {crowd}"
        return (
            f"{who} for a thread that could start {wait.task}: all are at work; {change}, if there "
            f"are cores for them{_in_turns(schedule)}"
        )
    if wait.cause == "scheduler" and not _is_mostly(wait, what_if, _held):
        copied = copies_of(schedule).why(wait.task, wait.on_device)
        crowded = contention(schedule)
        why = copied or crowded.why_late or "larger batches make this smaller"
        if for_thread and not copied and CROWDED <= crowded.share < MOST:
            why = f"threads had none for {percent(crowded.share)} of the time with work"
        if for_thread and (crowd := _crowd(schedule)):
            why = f"its thread has other work, as {crowd}"
        elif for_thread:
            why = f"its thread has other work, the free one sleeps or has no processor; {why}"
        return f"{who} until {wait.task} starts, though it is ready and a thread is free: {why}"
    return ""  # also of what waits for Python, which is said of all together


def _crowd(schedule: Schedule) -> str:
    """Says so if devices of this process take turns on fewer processors."""
    meta = schedule.trace.meta
    cores, places = meta.get("cpus"), str(meta.get("places") or "")
    count = len(schedule.devices)
    of_this_process = meta.get("scheduler") != "distributed" and "CUDA" not in places
    if not cores or not of_this_process or count <= cores:
        return ""
    if (meta.get("num_threads") or count) < cores or meta.get("scheduler") == "sync":
        return ""
    return (
        f"{count} devices take turns on {counted(cores, 'processor')}: {cores} devices do as much, "
        "with larger batches"
    )


def _is_mostly(
    wait: Wait, what_if: WhatIf, part: Callable[[Replay, int], tuple[float, float]]
) -> bool:
    """Whether a task began late mostly for one reason: seconds for it, and for all others."""
    found = [
        part(replay, at)
        for replay in what_if.replays
        for at, one in enumerate(replay.activities.all)
        if replay.activities.is_first(at) and _is_of(wait, replay.activities.runs.runs[one.run])
    ]
    reason, rest = (sum(column) for column in zip(*found, strict=True)) if found else (0.0, 0.0)
    return reason > rest


def _held(replay: Replay, at: int) -> tuple[float, float]:
    """Seconds before an activity in which other threads ran Python, and the others."""
    held = float(replay.held[at])
    return held, replay.activities.delays[at] - held


def _in_turn(replay: Replay, at: int) -> tuple[float, float]:
    """Seconds before an activity in which its thread did other work, and the others."""
    activities = replay.activities
    thread, delay = activities.thread[at], activities.delays[at]
    if thread is None or thread != activities.waited[at] or thread in activities.needs[at]:
        return 0.0, delay
    ends = (activities.all[source].stop for source in activities.needs[at])
    return activities.all[thread].stop - max(ends, default=replay.start), delay


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
    known = _slow_operator(wait, schedule) or _between_operators(wait, schedule)
    if known:
        return known
    crowd = contention(schedule).why_late
    if mine and mine == its:
        busy = f"and {crowd}" if crowd else "so see what else runs on its core"
        return f"it is fed as many rows, {busy}"
    return crowd or "see what else runs on its core, or whether it gets more samples"


def _slow_operator(wait: Wait, schedule: Schedule) -> str:
    """Names the operator that alone makes a straggler late, if others are not slower as well."""
    here, there = (
        by_operator(schedule, schedule.middle, device) for device in (wait.device, wait.on_device)
    )
    longer = {name: seconds - here[name] for name, seconds in there.items()}
    name = max(longer, key=longer.__getitem__, default="")
    rest = there.total() - there[name], here.total() - here[name]
    usual = max(1.0, rest[0] / rest[1] if rest[1] else 1.0)
    least = MOSTLY * max(sum(longer.values()), wait.seconds)
    if longer.get(name, 0.0) < least or there[name] <= _ALONE * usual * here[name]:
        return ""
    its, mine = (seconds_text(found[name] / len(schedule.middle)) for found in (there, here))
    return f"{name} takes {its} a step there, and {mine} on device {wait.device}"


def _between_operators(wait: Wait, schedule: Schedule) -> str:
    """Says so if a straggler is late for the time between its operators."""
    found = Counter[int | None]()
    for piece in (schedule.by_id[index] for step in schedule.middle for index in step.slices):
        if piece.event.kind == "task" and not piece.is_leaf_work:
            found[piece.event.device] += piece.own
    if found[wait.on_device] - found[wait.device] < MOSTLY * wait.seconds:
        return ""
    sides = (found[device] / len(schedule.middle) for device in (wait.on_device, wait.device))
    its, mine = map(seconds_text, sides)
    return f"it spends {its} a step between operators, and device {wait.device} {mine}"


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


def worth(text: str, saved: float) -> str:
    """Return a sentence with what a change saves."""
    return f"{text}; without that a step takes {percent(saved)} less"


def _nodes_of(wait: Wait, schedule: Schedule) -> tuple[int, ...]:
    """The operators of the task that a device waited for; the wait has its name without number."""
    tasks = schedule.facts.tasks.values() if schedule.facts else ()
    named = [task["nodes"] for task in tasks if task["key"].partition("-")[0] == wait.task]
    return tuple(node for nodes in named for node in nodes)


def _without(wait: Wait, for_thread: bool) -> Callable[[Replay], float]:
    """A function that replays a step without a wait; returns the step's seconds."""

    def seconds(replay: Replay) -> float:
        if for_thread:
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
