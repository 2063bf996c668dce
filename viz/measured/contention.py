"""How busy the processors were during a run, and what its steps take without that.

Other programs make steps slower without anything in this one being slower. Two runs are compared
only as far as that does not explain their difference.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from dpexec.viz.measured.schedule import Schedule, Step
from dpexec.viz.pages.units import percent

CROWDED = 0.1
"""A share of the time without a processor, from which on a run is said to be disturbed."""

MOST = 0.5
"""A share of the time without a processor, from which on that is why steps are long."""

_APART = 0.005
"""Seconds between samples, at least; see `dpexec.engine.trace.processors`."""

_LEAST = 0.03
_DRAWS = 500
_SEED = 20160919


class Contention:
    """The share of their time for which the threads of a run had no processor.

    Only time counts in which threads had something to do. Other programs had the processors then,
    or other threads of the process.

    Args:
        schedule: The trace; the share is 0 if it has no samples.

    Attributes:
        share: The share, over the counted steps.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        samples = schedule.trace.meta.get("processors") or [[0.0, 0.0, 0.0]]
        self._rows: npt.NDArray[np.float64] = np.array(samples, np.float64)
        counted = schedule.counted
        self.share, _ = self._between(counted[0].start, counted[-1].stop)

    def _between(self, start: float, stop: float) -> tuple[float, float]:
        """The share of threads' time, and the share of all time, in which they had no processor.

        Where no samples are near, those of the whole run; (0, 0) without any.
        """
        moments, *sums = self._rows.T
        work, wait = (float(np.ptp(np.interp((start, stop), moments, sum_))) for sum_ in sums)
        covered = min(stop, moments[-1]) - max(start, moments[0])
        if not work + wait or covered <= 0:
            if (start, stop) == (moments[0], moments[-1]):
                return 0.0, 0.0
            return self._between(moments[0], moments[-1])
        return wait / (work + wait), wait / max(covered, work + wait)

    def free(self) -> list[float]:
        """Return the seconds of the counted steps if there had always been a processor."""
        return [
            step.seconds * (1 - self._between(step.start, step.stop)[1])
            for step in self.schedule.counted
        ]

    def during(self, step: Step) -> str:
        """A clause for a sentence about a step; "" if its threads mostly had a processor."""
        rows = self._rows[:, 0]
        if not ((rows >= step.start) & (rows <= step.stop + _APART)).any():
            return ""
        _, share = self._between(step.start, step.stop)
        if share < MOST:
            return ""
        return f", while its threads had no processor for {percent(share)} of it"

    @property
    def why_late(self) -> str:
        """Why threads do not begin or go on, in a clause; "" if they mostly had a processor."""
        if self.share < MOST:
            return ""
        return (
            f"for {percent(self.share)} of the time in which they have work, threads wait for a "
            "processor, which other programs or threads use"
        )

    def __str__(self) -> str:
        """A sentence; "" if threads hardly waited."""
        if self.share < CROWDED:
            return ""
        return (
            f"Threads had no processor for {percent(self.share)} of the time in which they had "
            "work: other programs use the processors, or there are more threads than processors. "
            "Steps take longer for that alone, and predictions are less sure."
        )


def remaining(before: Contention, after: Contention) -> tuple[float, float]:
    """Return by what share steps are longer if both runs always had a processor.

    Returns:
        The share, and a bound that it exceeds in 39 of 40 cases. The bound is lower the more the
        processors were in use, as threads also wait for each other meanwhile.
    """
    generator = np.random.default_rng(_SEED)
    one, other = (_means(run.free(), generator) for run in (before, after))
    ratios = other / np.where(one > 0, one, 1.0) - 1
    doubt = max(before.share, after.share)
    low = float(np.quantile(ratios[1:], 0.025)) - (doubt / 2 if doubt >= _LEAST else 0.0)
    return float(ratios[0]), low


def _means(values: Sequence[float], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """The mean of some values, then the means of draws from them."""
    found = np.array(values)
    chosen = generator.integers(0, len(found), (_DRAWS, len(found)))
    return np.concatenate([[found.mean()], found[chosen].mean(axis=1)])


def contention(schedule: Schedule) -> Contention:
    """Return the contention of a schedule; it is made once."""
    return schedule.once(("contention", 0), lambda: Contention(schedule))
