"""Sentences about steps that took unusually long, and about long times between steps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from dpexec.viz.advising.analysis import Analysis
from dpexec.viz.advising.waits import MOSTLY
from dpexec.viz.measured.contention import Contention
from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.measured.shares import StepTime, during
from dpexec.viz.measured.step_parts import why_longer
from dpexec.viz.pages.units import counted, seconds_text

_SLOW = 3
_UNUSUAL = 2.0
"""The slowest steps are explained if they take more than so many times the median."""

_APART = 10.0
"""Times between steps are said if they are more than so many times the usual one."""


def slow_steps(schedule: Schedule, found: Analysis, crowded: Contention) -> list[str]:
    """Return why the longest steps took much longer than the typical one, if they did.

    Of steps that were chosen, all other steps of the trace tell what is typical.

    Args:
        schedule: The trace.
        found: The analysis of its steps.
        crowded: How busy the processors were.
    """
    usual, is_chosen = found.median, schedule.is_chosen
    whole = Schedule(schedule.trace) if is_chosen else schedule
    if is_chosen:
        usual = median(step.seconds for step in whole.counted)
    return [
        *_long_steps(schedule, whole, usual, crowded),
        *_how_many(schedule, usual),
        *_prepared(schedule, found.steps, usual),
        *_long_gaps(found.steps, usual),
    ]


def _long_steps(
    schedule: Schedule, whole: Schedule, usual: float, crowded: Contention
) -> Iterator[str]:
    longest = sorted(schedule.steps, key=lambda step: -step.seconds)[:_SLOW]
    slow_ones = [step for step in longest if step.seconds > _UNUSUAL * usual]
    slow_ones.sort(key=lambda step: step.number)
    reasons = why_longer(whole, [whole.step(step.number) for step in slow_ones])
    for step, longer in zip(slow_ones, reasons, strict=True):
        again = during(schedule, step.start, step.stop, "recovering")
        if again > longer.seconds / 2:
            yield (
                f"Step {step.number} took {seconds_text(step.seconds)}: for {seconds_text(again)} "
                "it was repeated, as a worker was lost and replaced."
            )
            continue
        where = "" if longer.device is None else f" on device {longer.device}"
        yield (
            f"Step {step.number} took {seconds_text(step.seconds)}: "
            f"{seconds_text(longer.seconds)} more than the typical one for {longer.name}"
            f"{where}{crowded.during(step)}."
        )


def _how_many(schedule: Schedule, usual: float) -> Iterator[str]:
    """How many counted steps were long, if they are more than those that are explained."""
    slow = [step.number for step in schedule.counted if step.seconds > _UNUSUAL * usual]
    if len(slow) <= _SLOW:
        return
    apart = Counter(after - before for before, after in pairwise(slow))
    ((each, times),) = apart.most_common(1)
    is_regular = each > 1 and times >= MOSTLY * (len(slow) - 1)
    rhythm = f", mostly one every {each} steps" if is_regular else ""
    yield (
        f"In all, {len(slow)} of {counted(len(schedule.counted), 'step')} took more than "
        f"{_UNUSUAL:g} times as long as the typical one{rhythm}."
    )


def _prepared(schedule: Schedule, steps: Sequence[StepTime], usual: float) -> Iterator[str]:
    slow = sorted((-before.prepared, after.step) for before, after in pairwise(steps))
    is_away = schedule.trace.meta.get("scheduler") == "distributed"
    others = ", or another program had changed its variables" if is_away else ""
    for seconds, number in sorted(slow[:_SLOW], key=lambda pair: pair[1]):
        if -seconds > usual:
            yield (
                f"Before step {number}, preparing it took {seconds_text(-seconds)}: "
                f"{_new_shape(schedule, number)}{others}."
            )


def _new_shape(schedule: Schedule, number: int) -> str:
    """What was new in a step, as far as the trace tells it."""
    start, rows = schedule.step(number).start, schedule.trace.meta.get("shapes") or ()
    before = max((s.stop for s in schedule.steps if s.stop <= start), default=-math.inf)
    for time, name, shape in rows:
        if before < time <= start:
            return f"the shape of {name} was new, {'×'.join(map(str, shape))}"
    return "the shape of its batch was new, or came for the second time"


def _long_gaps(steps: Sequence[StepTime], usual: float) -> Iterator[str]:
    """Times between steps that are unusual, and not said to have another reason."""
    gaps = [
        ((before.gap or 0.0) - before.met - before.prepared - before.read, after.step)
        for before, after in pairwise(steps)
        if after.step == before.step + 1
    ]
    if not gaps:
        return
    each = median(seconds for seconds, _ in gaps)
    longest = sorted(gaps, reverse=True)[:_SLOW]
    for seconds, number in sorted(longest, key=lambda gap: gap[1]):
        if seconds > max(_APART * each, usual):
            yield (
                f"Before step {number}, the script or other programs took {seconds_text(seconds)}; "
                f"before a step it is {seconds_text(each)} (the median)."
            )
