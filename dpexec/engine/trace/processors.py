"""How long threads of this process waited for a processor, and how much memory it has.

Linux counts both. On a busy machine steps take longer although nothing in the program is slower;
samples show how much longer. They are taken at the end of recorded steps, so rarely that they cost
next to nothing. Systems without ``/proc`` have no samples.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping

__all__ = ["Samples", "WorkerSamples", "samples"]

_APART = 5_000_000
"""Nanoseconds from one sample to the next, at least."""

_COST = 500
"""Samples are further apart than so many times the time that one takes."""

_KEPT = 4096
_NANO = 1e-9
_MIB = 1 / 2**20


class Samples:
    """The time that threads worked, and the time that they were ready and had no processor."""

    def __init__(self) -> None:
        self.due = 0
        self._rows: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)
        self._resident: deque[tuple[int, int]] = deque(maxlen=_KEPT)
        self._known: dict[int, tuple[int, int]] = {}
        self._sums = [0, 0]
        self._files: dict[int, int] = {}  # by thread, where Linux says its times; 0: memory
        self._process = os.getpid()

    def take(self, now: int) -> None:
        """Take a sample. Callers first compare the time with `due`, which is faster than a call.

        Args:
            now: the time, in nanoseconds.
        """
        self.due = now + _APART
        began = time.thread_time_ns()
        known = self._known
        self._known = {}
        for thread, times in self._times():
            self._known[thread] = times
            before = known.get(thread, times)  # what it did before it was first seen is unknown
            for column in (0, 1):
                self._sums[column] += max(0, times[column] - before[column])
        self._rows.append((now, self._sums[0], self._sums[1]))
        if (pages := self._pages()) is not None:
            self._resident.append((now, pages * mmap.PAGESIZE))
        self.due += _COST * (time.thread_time_ns() - began)

    def _times(self) -> list[tuple[int, tuple[int, int]]]:
        """The nanoseconds of work and of waiting of every thread that runs Python."""
        alive = {thread.native_id or 0 for thread in threading.enumerate()} - {0}
        if os.getpid() != self._process or not alive >= self._files.keys() - {0}:
            self._process = os.getpid()
            while self._files:  # of threads that have ended, or of the process before a fork
                os.close(self._files.popitem()[1])
        found = []
        for thread in alive:
            try:
                if thread not in self._files:
                    path = f"/proc/self/task/{thread}/schedstat"
                    self._files[thread] = os.open(path, os.O_RDONLY)
                work, wait = os.pread(self._files[thread], 64, 0).split()[:2]
            except (OSError, ValueError):  # not Linux, or the thread has ended
                continue
            found.append((thread, (int(work), int(wait))))
        return found

    def _pages(self) -> int | None:
        """The pages of memory that the process has; None where Linux does not say it."""
        try:
            if 0 not in self._files:
                self._files[0] = os.open("/proc/self/statm", os.O_RDONLY)
            return int(os.pread(self._files[0], 64, 0).split()[1])
        except (OSError, ValueError):
            return None

    def resident(self, start: float, stop: float) -> list[list[float]]:
        """Return the memory of the process in a span of time.

        Args:
            start: seconds, on the clock of traces.
            stop: seconds.

        Returns:
            Rows of the time and MiB.
        """
        rows = [(now * _NANO, size * _MIB) for now, size in list(self._resident)]
        return [[round(now, 6), round(mib, 2)] for now, mib in rows if start <= now <= stop]

    def sums(self) -> tuple[int, int]:
        """The nanoseconds of work and of waiting until now; a sample is taken if one is due."""
        now = time.perf_counter_ns()
        if now >= self.due:
            self.take(now)
        return self._sums[0], self._sums[1]

    def between(self, start: float, stop: float) -> list[list[float]]:
        """Return the samples of a span of time.

        Args:
            start: seconds, on the clock of traces.
            stop: seconds.

        Returns:
            Rows of three numbers of seconds: the time, and the sums so far of all threads' work and
            of their waits for a processor. No rows if there are fewer than two.
        """
        return _within(self._rows, start, stop)


class WorkerSamples:
    """The same of all workers of a cluster together, which send theirs with their notes.

    Attributes:
        behind: by address of a worker, seconds to add to its clock to get that of this process.
    """

    def __init__(self) -> None:
        self.behind: dict[str, float] = {}
        self._rows: deque[tuple[int, int, int]] = deque(maxlen=_KEPT)
        self._known: dict[str, tuple[int, int]] = {}
        self._sums = [0, 0]

    def add(self, now: int, found: Mapping[str, tuple[int, int]]) -> None:
        """Add what workers sent.

        Args:
            now: the time on the clock of this process, in nanoseconds.
            found: by address of the worker: its sums, of `Samples.sums`. Those of a new process
                begin at 0.
        """
        for address, sums in found.items():
            before = self._known.get(address, sums)
            for column in (0, 1):
                self._sums[column] += max(0, sums[column] - before[column])
        self._known |= found
        self._rows.append((now, self._sums[0], self._sums[1]))

    def resident(self, start: float, stop: float) -> list[list[float]]:
        """Nothing: workers do not send how much memory they have."""
        return []

    def between(self, start: float, stop: float) -> list[list[float]]:
        """Return the samples of a span of time, see `Samples.between`."""
        return _within(self._rows, start, stop)


def _within(
    samples: Iterable[tuple[int, int, int]], start: float, stop: float
) -> list[list[float]]:
    rows = [row for row in list(samples) if start <= row[0] * _NANO <= stop]
    if len(rows) < 2 or rows[0][1:] == rows[-1][1:]:  # nothing was counted
        return []
    # A time that is rounded may be outside.
    found = [[round(number * _NANO, 6) for number in row] for row in rows]
    return [[min(max(now, start), stop), *sums] for now, *sums in found]


samples = Samples()
"""Those of this process."""
