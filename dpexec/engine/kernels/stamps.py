"""Converts the stamps of :func:`dpexec.engine.kernels.tables.run_timed` to times."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["EXTRA", "HEAD", "times_of", "width"]

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
