"""A simulated machine: jobs with dependencies on threads that share cores, and on a link.

Jobs on cores progress at the same rate, as an operating system lets them: at full speed while
there is a core for each, else with an equal share. The link does one transfer after another.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """Something to do.

    Args:
        seconds: On a core of its own, or on the link.
        after: Positions of the jobs that must be done before, all smaller than its own.
        delay: Seconds between the end of the last of them and the start.
        on_link: Whether it occupies the link instead of a core.
    """

    seconds: float
    after: tuple[int, ...] = ()
    delay: float = 0.0
    on_link: bool = False


def makespan(jobs: Sequence[Job], cores: float = math.inf, threads: float = math.inf) -> float:
    """Return how long a machine takes for all jobs.

    Args:
        jobs: What to do.
        cores: How many jobs progress at full speed at the same time.
        threads: How many jobs may have been started and not ended; further ones wait in order.
    """
    return _Machine(jobs, cores, threads).run()


class _Machine:
    def __init__(self, jobs: Sequence[Job], cores: float, threads: float) -> None:
        self.jobs, self.cores, self.threads = jobs, cores, threads
        self.now = 0.0
        self.done = 0.0  # seconds of work that every job on a core has got since the beginning
        self.running: list[tuple[float, int]] = []  # what `done` will be at the end, job
        self.timers: list[tuple[float, int, bool]] = []  # when, job, whether it ends (or starts)
        self.queue: deque[int] = deque()
        self.link: deque[int] = deque()
        self.link_busy = False
        self.missing = [len(job.after) for job in jobs]
        self.followers: list[list[int]] = [[] for _ in jobs]
        for index, job in enumerate(jobs):
            for source in job.after:
                self.followers[source].append(index)

    def run(self) -> float:
        for index, count in enumerate(self.missing):
            if not count:
                self._ready(index)
        while self.running or self.timers:
            rate = min(1.0, self.cores / len(self.running)) if self.running else 1.0
            timer = self.timers[0][0] if self.timers else math.inf
            work = (self.running[0][0] - self.done) / rate if self.running else math.inf
            if self.now + work <= timer:
                self.now += work
                self.done, index = heapq.heappop(self.running)
                self._finish(index)
                continue
            self.done += (timer - self.now) * rate
            self.now, index, ends = heapq.heappop(self.timers)
            if ends:
                self.link_busy = False
                self._finish(index)
            else:
                (self.link if self.jobs[index].on_link else self.queue).append(index)
            self._start()
        return self.now

    def _ready(self, index: int) -> None:
        heapq.heappush(self.timers, (self.now + self.jobs[index].delay, index, False))

    def _start(self) -> None:
        while self.queue and len(self.running) < self.threads:
            index = self.queue.popleft()
            heapq.heappush(self.running, (self.done + self.jobs[index].seconds, index))
        if self.link and not self.link_busy:
            index = self.link.popleft()
            self.link_busy = True
            heapq.heappush(self.timers, (self.now + self.jobs[index].seconds, index, True))

    def _finish(self, index: int) -> None:
        for follower in self.followers[index]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self._ready(follower)
        self._start()
