"""Schedulers of one process: dask's threads, dask's synchronous one, and a plain loop."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.local
import dask.threaded
from dask.callbacks import Callback

from dpexec.engine.compile.plan import Plan
from dpexec.engine.run.dask_graph import FETCH_KEY, to_dask
from dpexec.engine.threads.prepared import PreparedGraph, Threads

__all__ = ["LocalGraph", "LocalScheduler", "inline"]


class LocalGraph:
    """The dask graph of a plan whose tasks share memory: results are None but for the fetches.

    Args:
        plan: the plan.
        run_task: called with the number of a task.
        fetch: gives the result.
    """

    def __init__(
        self, plan: Plan, run_task: Callable[[int], None], fetch: Callable[[], list[Any]]
    ) -> None:
        self.tasks = to_dask(plan, lambda number, *_: run_task(number), lambda *_: fetch())

    @functools.cached_property
    def prepared(self) -> PreparedGraph:
        """Its order and dependencies, computed once."""
        return PreparedGraph(self.tasks, FETCH_KEY)


class LocalScheduler:
    """Runs dask graphs on threads of this process.

    ``dask.diagnostics`` (ProgressBar, Profiler) and other dask callbacks work around it: then
    dask's own scheduler runs the graph. When a task fails, those that run are waited for and those
    in the queue never start.

    Args:
        num_threads: how many; 0 runs everything on the calling thread.
        prepare: keep what dask computes at every run; else dask's own scheduler always runs.
    """

    def __init__(self, num_threads: int, prepare: bool) -> None:
        self._num_threads = num_threads
        self._prepare = prepare and num_threads > 0
        self._pool: ThreadPoolExecutor | None = None

    @functools.cached_property
    def threads(self) -> Threads:
        """Those that help the calling thread."""
        return Threads(self._num_threads - 1)

    @property
    def caller_works(self) -> bool:
        """Whether the calling thread, which interrupts reach, runs tasks among other threads."""
        return self._prepare and not Callback.active

    def run(self, graph: LocalGraph) -> list[Any]:
        """Run a graph; returns the fetches.

        Args:
            graph: of a plan.

        Raises:
            BaseException: what a task raised.
        """
        result: list[Any]
        if not self._num_threads:
            result = dask.local.get_sync(graph.tasks, FETCH_KEY)
        elif self.caller_works:
            result = graph.prepared.run(self.threads)
        else:
            result = self._run_in_pool(graph)
        return result

    def _run_in_pool(self, graph: LocalGraph) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="dpexec")
        try:
            return dask.threaded.get(graph.tasks, FETCH_KEY, pool=self._pool)
        except BaseException:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            raise


def inline(plan: Plan, run_task: Callable[[int], Any], fetch: Callable[[], list[Any]]) -> list[Any]:
    """Run the tasks one after another on the calling thread, without dask.

    Args:
        plan: the plan.
        run_task: called with the number of a task.
        fetch: gives the result.

    Returns:
        The fetches.
    """
    for task in plan.tasks:
        run_task(task.id)
    return fetch()
