"""A scheduler for graphs that run repeatedly: it keeps the results of dask's analysis.

It runs dask's own tasks in dask's own order, with fewer hand-offs: the calling thread works too,
and a thread that makes a task ready goes on with it. With dask callbacks in force
(``dask.diagnostics``) dask's threaded scheduler runs the graph, so that they see what they expect.
Errors are the same: the first one is raised, after the tasks that run have ended.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Protocol

from dask.order import order

from dpexec.engine.threads.helping import Helping

__all__ = ["Helpable", "PreparedGraph", "Threads", "nap"]


class Helpable(Protocol):
    """Work that a helping thread can join."""

    def work(self) -> None:
        """Help, until there is nothing more to do."""


class _Pool:
    """The helping threads of this process; one is started if none is free.

    All engines share them. Threads of an engine would live as long as the engine, and engines lie
    in cycles of references, which Python collects rarely.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0  # threads without a call, or about to end one, less the calls that wait
        self._started = 0

    def call(self, function: Callable[[], None]) -> None:
        """Let a thread call a function, which must call :meth:`ends` as its last act."""
        with self._lock:
            if self._free:
                self._free -= 1
            else:
                name = f"dpexec_{self._started}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                self._started += 1
        self._calls.put(function)

    def ends(self) -> None:
        """The calling thread is about to be free.

        It says so before anybody can know that its work is done: else each step of a busy machine,
        where it may not run for a while, would start another thread.
        """
        with self._lock:
            self._free += 1

    def _work(self) -> None:
        while True:
            function = self._calls.get()
            function()
            del function  # what it holds may be freed while this thread waits


_pool = _Pool()


def _forget_threads() -> None:
    global _pool
    _pool = _Pool()


os.register_at_fork(after_in_child=_forget_threads)  # a child process has none of them


class Threads:
    """Threads that help with the runs of an engine; they come from those of the process.

    Args:
        number: how many help at a time. Runs that ask for more wait.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self._lock = threading.Lock()
        self._waiting: deque[Helpable] = deque()
        self._helping = 0

    @property
    def idle(self) -> bool:
        """Whether no thread helps, and no run waits for one."""
        return not self._helping

    def ask(self, run: Helpable) -> None:
        """Let a thread help with a run as soon as one may."""
        with self._lock:
            self._waiting.append(run)
            if self._helping == self.number:
                return
            self._helping += 1
        _pool.call(self._help)

    def _help(self) -> None:
        while (run := self._next()) is not None:
            run.work()
            del run

    def _next(self) -> Helpable | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            _pool.ends()
            self._helping -= 1
            return None


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

    After an interrupt outside of tasks the counts may be wrong, so the run does not go on: the
    thread that started it waits until the others have left their tasks, as the next run works in
    the same memory.
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
                self.threads.ask(self)
