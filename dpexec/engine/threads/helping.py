"""Whether threads should help with a graph that runs again and again: both ways are timed."""

from __future__ import annotations

import statistics
from collections import deque

__all__ = ["Helping"]

_TRIAL = 5
"""Runs of a trial, and how many times of either way are compared."""
_FIRST_PAUSE, _LONGEST_PAUSE = 16, 2048
"""Runs between two trials: twice as many after every trial that changed nothing."""
_GAIN = 0.9
"""The other way becomes the usual one if it takes at most this share of its time."""
_SHORT = 0.02
"""Seconds: in longer runs the overhead between threads hardly counts, and trials are expensive."""


class Helping:
    """Which way runs of a graph are faster: with helping threads, or on the calling one alone.

    Tasks of small operators are mostly Python. On several threads they wait for each other's GIL
    at every kernel, and together take longer than one after another. How long kernels take is
    known only from running them, so now and then some runs go the other way than usual.

    Attributes:
        wanted: whether threads are to help with the next run.
    """

    def __init__(self) -> None:
        self.wanted = True
        self._tries = False  # whether runs go the other way than usual
        self._left = self._pause = _FIRST_PAUSE
        self._times: dict[bool, deque[float]] = {way: deque(maxlen=_TRIAL) for way in (True, False)}

    def note(self, seconds: float) -> None:
        """Record how long a run took.

        Args:
            seconds: the duration, with or without help as :attr:`wanted` said.
        """
        self._times[self.wanted].append(seconds)
        self._left -= 1
        if self._left > 0:
            return
        now = statistics.median(self._times[self.wanted])
        if self._tries:
            self._end_trial(now)
        elif now < _SHORT:
            self._tries, self._left, self.wanted = True, _TRIAL, not self.wanted
        else:
            self._left = self._pause

    def _end_trial(self, seconds: float) -> None:
        if seconds < _GAIN * statistics.median(self._times[not self.wanted]):
            self._pause = _FIRST_PAUSE  # the way that was tried is the usual one from now on
        else:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self.wanted = not self.wanted
        self._tries, self._left = False, self._pause
