"""Converts the stamps of :func:`dpexec.engine.kernels.tables.run_timed` to times."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["EXTRA", "HEAD", "times_of", "until_refusal", "width"]

EXTRA = 3
"""Numbers besides the one of each row: the time at the begin and at the end, and the processor's
counter at the begin."""
HEAD = 2
"""Numbers that an item of a schedule notes before them: the thread, and the word that it lacked
last."""


def width(rows: int) -> int:
    """How many numbers a table of some rows writes."""
    return rows + EXTRA


def times_of(stamps: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The times in whole nanoseconds, on the clock of ``time.perf_counter_ns``.

    The processor's counter is read after every row, since that takes half as long as reading the
    clock; the clock is read at both ends, and gives the counter its unit.

    Args:
        stamps: what was written, ``(n + 3,)`` for n rows.

    Returns:
        The begin and the end of every row, ``(n + 1,)``.
    """
    ticks = (stamps[1:-1] - stamps[1]).astype(np.float64)
    return np.rint(stamps[0] + ticks * ((stamps[-1] - stamps[0]) / max(ticks[-1], 1.0)))


def until_refusal(stamps: np.ndarray[Any, Any], now: float) -> tuple[int, list[float]]:
    """How many rows ran before one whose kernel refused its values, and their times.

    The clock was read then, and written behind the counter of the last row that ran. What lies
    behind that was written by an earlier run.

    Args:
        stamps: what was written, ``(n + 3,)`` for n rows.
        now: a later time of the clock.

    Returns:
        The number of rows, and the begin and the end of each.
    """
    clocks = np.flatnonzero((stamps[0] <= stamps[1:]) & (stamps[1:] <= now))
    ran = int(clocks[-1]) - 1  # the last one, as counters may be clocks themselves
    return ran, times_of(stamps[: width(ran)]).tolist()
