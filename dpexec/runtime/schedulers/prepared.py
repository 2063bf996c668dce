"""A scheduler for graphs that run again and again: what dask computes at every run is kept.

It runs dask's own tasks in dask's own order, with fewer hand-offs: the calling thread works too,
and a thread that makes a task ready goes on with it. With dask callbacks in force
(``dask.diagnostics``) dask's threaded scheduler runs the graph, so that they see what they expect.
Errors are the same: the first one is raised, after the tasks that run have ended.
"""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any, Protocol

from dask.order import order

from dpexec.runtime.schedulers.helping import Helping

__all__ = ["Helpable", "PreparedGraph", "Threads", "nap"]


class Helpable(Protocol):
    """What a thread can help with."""

    def work(self) -> None:
        """Help, until there is nothing more to do."""


class Threads:
    """Threads that help with runs; they end with the last reference to this.

    Args:
        number: how many.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.runs: SimpleQueue[Helpable | None] = SimpleQueue()
        weakref.finalize(self, _end, self.runs, number)
        for index in range(number):
            name = f"dpexec_{index}"
            threading.Thread(target=_help, args=(self.runs,), name=name, daemon=True).start()


def _help(runs: SimpleQueue[Helpable | None]) -> None:
    while (run := runs.get()) is not None:
        run.work()
        del run


def _end(runs: SimpleQueue[Helpable | None], number: int) -> None:
    for _ in range(number):
        runs.put(None)


def nap(since: float) -> None:
    """Sleep for a fraction of the time that this thread has waited already.

    Args:
        since: when it began to wait, by ``time.perf_counter``.
    """
    time.sleep(min(1e-3, max(2e-5, (time.perf_counter() - since) / 8)))


class PreparedGraph:
    """A dask graph with its order and dependencies.

    Args:
        graph: dask tasks by key, all of which the last one needs.
        key: the result.
    """

    def __init__(self, graph: Mapping[Any, Any], key: Any) -> None:
        ranks: dict[Any, int] = order(graph)
        keys = sorted(graph, key=ranks.__getitem__)
        number = {key: index for index, key in enumerate(keys)}
        self.tasks = [graph[key] for key in keys]
        self.result = number[key]
        self.waits_for = [len(task.dependencies) for task in self.tasks]
        self.successors: list[list[int]] = [[] for _ in keys]
        for index, task in enumerate(self.tasks):
            for dependency in task.dependencies:
                self.successors[number[dependency]].append(index)
        self.roots = [index for index, count in enumerate(self.waits_for) if not count]
        self.helping = Helping()

    def run(self, threads: Threads) -> Any:
        """Run all tasks on the calling thread and helping ones; returns the result.

        Args:
            threads: those that help, unless runs are shorter without.

        Raises:
            BaseException: what a task raised.
        """
        if not threads.number:
            return _Run(self, None).finish()
        began = time.perf_counter()
        result = _Run(self, threads if self.helping.wanted else None).finish()
        self.helping.note(time.perf_counter() - began)
        return result


class _Run:
    """One run of a graph.

    An interrupt outside of tasks loses a count, so nobody goes on after it: the thread that started
    the run only waits until the others have left their tasks, whose memory the next run works in.
    """

    def __init__(self, graph: PreparedGraph, threads: Threads | None) -> None:
        self.graph = graph
        self.threads = threads
        self.lock = threading.Lock()
        self.values: dict[Any, Any] = {}
        self.waits_for = list(graph.waits_for)
        self.ready = list(graph.roots)  # in order, so it is a heap
        self.running = 0
        self.helping = 0
        self.error: BaseException | None = None
        self.caller_waits = False
        self.caller: SimpleQueue[None] = SimpleQueue()

    def finish(self) -> Any:
        """Work and wait until nothing is left to do."""
        try:
            return self._finish()
        except BaseException as error:
            self._fail(error)
            self._let_end()
            raise

    def _let_end(self) -> None:
        began = time.perf_counter()
        while self.helping:
            nap(began)

    def work(self) -> None:
        """Run tasks on a helping thread as long as some are ready."""
        with self.lock:
            self.helping += 1
        self._work()
        with self.lock:
            self.helping -= 1

    def _finish(self) -> Any:
        self._call_for_help(len(self.ready) - 1)
        while True:
            self._work()
            with self.lock:
                if not self.running:
                    break
                self.caller_waits = True
            self.caller.get()
        if self.error is not None:
            raise self.error
        return self.values[self.graph.tasks[self.graph.result].key]

    def _work(self) -> None:
        number = self._take()
        while number is not None:
            task = self.graph.tasks[number]
            try:
                value = task(self.values)
            except BaseException as error:
                self._fail(error)
                number = self._done(None)
            else:
                self.values[task.key] = value
                number = self._done(number)

    def _take(self) -> int | None:
        with self.lock:
            if self.error is not None or not self.ready:
                return None
            self.running += 1
            return heapq.heappop(self.ready)

    def _done(self, number: int | None) -> int | None:
        """Note the end of a task (None: it failed); returns the next one."""
        with self.lock:
            fresh = 0
            if number is not None:
                for successor in self.graph.successors[number]:
                    self.waits_for[successor] -= 1
                    if not self.waits_for[successor]:
                        heapq.heappush(self.ready, successor)
                        fresh += 1
            following = None
            if self.ready and self.error is None:
                following = heapq.heappop(self.ready)
            else:
                self.running -= 1
            wake = self.caller_waits and (fresh > 1 or not self.running)
            if wake:
                self.caller_waits = False
        if wake:
            self.caller.put(None)
            fresh -= 1
        self._call_for_help(fresh - 1)
        return following

    def _fail(self, error: BaseException) -> None:
        with self.lock:
            if self.error is None:
                self.error = error

    def _call_for_help(self, number: int) -> None:
        if self.threads is not None:
            for _ in range(number):
                self.threads.runs.put(self)
