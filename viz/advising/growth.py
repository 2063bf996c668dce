"""Memory that grows from step to step: of the process, and of values of the program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from dpexec.viz.measured.schedule import Schedule
from dpexec.viz.pages.units import bytes_text, counted, percent

_MIB = 2**20
_LEAST = 4.0  # MiB; heaps grow and shrink by less for no reason
_SHARE = 0.02  # of all memory, likewise
_RECORDED = 64 / _MIB  # MiB that an event takes until it is read, at most
_SAMPLES = 4
_STEPS = 5
_RATIO = 1.1  # of its last size to its first, so that a value is said to grow
_EVEN = 0.1  # of the growth must happen in each quarter of the time
_NAMED = 2


def growth_text(schedule: Schedule) -> str:
    """Say how much memory the steps leave behind; "" if it is hardly any, or unknown."""
    return schedule.once(("growth", 0), lambda: _text(schedule))


def _text(schedule: Schedule) -> str:
    steps = schedule.counted
    if len(steps) < _STEPS:
        return ""
    start, stop = steps[0].start, steps[-1].stop
    rows = [row for row in schedule.trace.meta.get("resident") or () if start <= row[0] <= stop]
    values = _values(schedule)
    said = _process([mib for _, mib in rows], schedule)
    if said and not values:
        said += (
            " No value of the program grows: look for what the script keeps, such as fetched "
            "arrays in a list."
        )
    return " ".join(text for text in (said, values) if text)


def _process(sizes: Sequence[float], schedule: Schedule) -> str:
    """How much the memory of the process grew."""
    if len(sizes) < _SAMPLES:
        return ""
    marks = [sizes[(len(sizes) - 1) * quarter // 4] for quarter in range(5)]
    grown = marks[-1] - marks[0]
    events = sum(len(step.slices) for step in schedule.counted)
    grown -= _RECORDED * events
    if grown < max(_LEAST, _SHARE * marks[0]):
        return ""
    moves = [after - before for before, after in pairwise(marks)]
    if min(moves) < _EVEN * grown:
        return ""
    count = len(schedule.counted)
    return (
        f"The memory of the process grew from {bytes_text(round(marks[0] * _MIB))} to "
        f"{bytes_text(round(marks[-1] * _MIB))} in {counted(count, 'step')}, "
        f"{bytes_text(round(grown / count * _MIB))} a step ({percent(grown / marks[0])} in all)."
    )


def _values(schedule: Schedule) -> str:
    """The values that are larger in every few steps; stored variables first, as they stay."""
    sizes: dict[tuple[int, str], list[int]] = {}
    start, stop = schedule.counted[0].start, schedule.counted[-1].stop
    for row in schedule.trace.memory:
        if row.bytes > 0 and row.kind != "arena" and start <= row.time <= stop:
            sizes.setdefault((row.device, row.name), []).append(row.bytes)
    growing = {
        name: (each[0], each[-1])
        for (_, name), each in sizes.items()
        if each[-1] > _RATIO * each[0]
        and len(set(each)) >= _STEPS
        and all(one <= other for one, other in pairwise(each))
    }
    if not growing:
        return ""
    facts = schedule.facts
    stored = {var["name"] for var in facts.vars if var["persistable"]} if facts else set()
    names = sorted(
        growing, key=lambda name: (name not in stored, growing[name][0] - growing[name][1])
    )
    texts = [
        f"{name}{' (a variable that stays)' if name in stored else ''} from "
        f"{bytes_text(growing[name][0])} to {bytes_text(growing[name][1])}"
        for name in names[:_NAMED]
    ]
    more = len(names) - len(texts)
    rest = f", and {more} more" if more else ""
    return (
        f"From step to step, {' and '.join(texts)}{rest} {'grow' if len(names) > 1 else 'grows'}."
    )
