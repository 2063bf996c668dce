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
    """A job of the machine.

    Args:
        seconds: Its duration on a core of its own, or on the link.
        after: Positions of the jobs that must be done before, all smaller than its own.
        delay: Seconds before its start, counted from the moment at which they are done and a thread
            takes it; the thread does nothing else meanwhile.
        on_link: Whether it occupies the link instead of a core.
    """

    seconds: float
    after: tuple[int, ...] = ()
    delay: float = 0.0
    on_link: bool = False


def makespan(jobs: Sequence[Job], cores: float = math.inf, threads: Sequence[float] = ()) -> float:
    """Return the time that a machine takes for all jobs.

    Args:
        jobs: The jobs.
        cores: Number of jobs that progress at full speed at the same time.
        threads: For each thread, when it begins to take jobs; they take ready jobs in order.
            Without threads, every job has its own.
    """
    return _Machine(jobs, cores, threads).run()


_THREAD = -1
"""In place of a job in a timer: a thread begins to take jobs."""


class _Machine:
    def __init__(self, jobs: Sequence[Job], cores: float, threads: Sequence[float]) -> None:
        self.jobs, self.cores = jobs, cores
        self.idle = 0 if threads else len(jobs)  # threads that take jobs and have none
        self.now = 0.0
        self.done = 0.0  # seconds of work that every job on a core has got since the beginning
        self.running: list[tuple[float, int]] = []  # what `done` will be at the end, job
        self.timers = [(moment, _THREAD) for moment in sorted(threads)]
        """When, and the job that starts, or ends if it is a transfer."""
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
        self._start()
        while self.running or self.timers:
            rate = min(1.0, self.cores / len(self.running)) if self.running else 1.0
            timer = self.timers[0][0] if self.timers else math.inf
            work = (self.running[0][0] - self.done) / rate if self.running else math.inf
            if self.now + work <= timer:
                self.now += work
                self.done, index = heapq.heappop(self.running)
                self.idle += 1
                self._finish(index)
                continue
            self.done += (timer - self.now) * rate
            self.now, index = heapq.heappop(self.timers)
            if index == _THREAD:
                self.idle += 1
                self._start()
            elif self.jobs[index].on_link:
                self.link_busy = False
                self._finish(index)
            else:
                heapq.heappush(self.running, (self.done + self.jobs[index].seconds, index))
        return self.now

    def _ready(self, index: int) -> None:
        (self.link if self.jobs[index].on_link else self.queue).append(index)

    def _start(self) -> None:
        while self.queue and self.idle:
            index = self.queue.popleft()
            self.idle -= 1
            heapq.heappush(self.timers, (self.now + self.jobs[index].delay, index))
        if self.link and not self.link_busy:
            index = self.link.popleft()
            job, self.link_busy = self.jobs[index], True
            heapq.heappush(self.timers, (self.now + job.delay + job.seconds, index))

    def _finish(self, index: int) -> None:
        for follower in self.followers[index]:
            self.missing[follower] -= 1
            if not self.missing[follower]:
                self._ready(follower)
        self._start()
