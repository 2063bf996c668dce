"""Orders of the tasks of a step: a plain loop, dask's graph on threads, dask's own schedulers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.local
import dask.threaded
from dask.callbacks import Callback

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.run.dask_graph import FETCH_KEY, to_dask
from dpexec.engine.run.parts import Tasks
from dpexec.engine.threads.prepared import PreparedGraph, Threads

__all__ = ["DaskOrder", "Inline", "PlanGraph"]


class Inline:
    """One task after another on the calling thread, without dask."""

    def run(self, tasks: Tasks) -> list[Any]:
        """Run all tasks, see :meth:`Order.run`."""
        for task in tasks.plan.tasks:
            tasks.run(task.id)
        return tasks.fetch()


class PlanGraph:
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
        """The order and dependencies of its tasks, computed once."""
        return PreparedGraph(self.tasks, FETCH_KEY)


class DaskOrder:
    """The dask graph of the plan, on threads of this process; one step at a time.

    ``dask.diagnostics`` (ProgressBar, Profiler) and other dask callbacks work around it: then
    dask's own scheduler runs the graph. When a task fails, those that run are waited for and queued
    tasks never start.

    Args:
        num_threads: how many; 0 runs everything on the calling thread.
        prepare: keep what dask computes in every run; otherwise dask's own scheduler always runs.

    Attributes:
        prepares: as given by ``prepare``.
    """

    def __init__(self, num_threads: int, prepare: bool) -> None:
        self._num_threads = num_threads
        self.prepares = prepare and num_threads > 0
        self._pool: ThreadPoolExecutor | None = None
        self._graphs: LimitedCache[Plan, PlanGraph] = LimitedCache(limit_of("dask graphs"))
        self._tasks: Tasks | None = None  # of the step that runs

    @functools.cached_property
    def threads(self) -> Threads:
        """The threads that help the calling thread."""
        return Threads(self._num_threads - 1)

    @property
    def caller_works(self) -> bool:
        """Whether the calling thread runs tasks beside others; interrupts reach it alone."""
        return self.prepares and not Callback.active

    @property
    def graphs(self) -> list[PlanGraph]:
        """The graphs that are kept."""
        return list(self._graphs.values())

    def run(self, tasks: Tasks) -> list[Any]:
        """Run all tasks, see :meth:`Order.run`."""
        graph = self._graph(tasks.plan)
        tasks.gate.between_tasks = self.caller_works
        self._tasks = tasks
        result: list[Any]
        try:
            if not self._num_threads:
                result = dask.local.get_sync(graph.tasks, FETCH_KEY)
            elif self.caller_works:
                result = graph.prepared.run(self.threads)
            else:
                result = self._run_in_pool(graph)
        finally:
            self._tasks = None
        return result

    def _graph(self, plan: Plan) -> PlanGraph:
        if plan not in self._graphs:
            self._graphs[plan] = PlanGraph(plan, self._run_task, self._fetch)
        return self._graphs[plan]

    def _run_task(self, number: int) -> None:
        assert self._tasks is not None
        self._tasks.run(number)

    def _fetch(self) -> list[Any]:
        assert self._tasks is not None
        return self._tasks.fetch()

    def _run_in_pool(self, graph: PlanGraph) -> Any:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._num_threads, thread_name_prefix="dpexec")
        try:
            return dask.threaded.get(graph.tasks, FETCH_KEY, pool=self._pool)
        except BaseException:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
            raise
