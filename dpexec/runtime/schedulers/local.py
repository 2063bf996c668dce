"""Schedulers of one process: dask's threads, dask's synchronous one, and a plain loop."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask.local
import dask.threaded
from threadpoolctl import ThreadpoolController

from dpexec.runtime.lower import FETCH_KEY, to_dask
from dpexec.runtime.plan import Plan

__all__ = ["inline", "make_graph", "one_kernel_thread", "run_graph"]


def make_graph(
    plan: Plan, run_task: Callable[[int], None], fetch: Callable[[], list[Any]]
) -> dict[Any, Any]:
    """The dask graph of a plan whose tasks share memory: results are None but for the fetches."""
    return to_dask(plan, lambda number, *_: run_task(number), lambda *_: fetch())


def run_graph(graph: dict[Any, Any], pool: ThreadPoolExecutor | None) -> list[Any]:
    """Run a dask graph in ``pool``, or on the calling thread alone; return the fetches.

    ``dask.diagnostics`` (ProgressBar, Profiler) and other dask callbacks work around this. When a
    task fails, those that run are waited for and those in the queue never start: ``pool`` cannot
    be used again.
    """
    if pool is None:
        result: list[Any] = dask.local.get_sync(graph, FETCH_KEY)
        return result
    try:
        result = dask.threaded.get(graph, FETCH_KEY, pool=pool)
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    return result


def inline(plan: Plan, run_task: Callable[[int], Any], fetch: Callable[[], list[Any]]) -> list[Any]:
    """Run the tasks one after another on the calling thread, without dask."""
    for task in plan.tasks:
        run_task(task.id)
    return fetch()


@functools.cache
def _blas_libraries() -> Sequence[Any]:
    controllers = ThreadpoolController().lib_controllers
    return [lib for lib in controllers if lib.user_api == "blas"]


@contextlib.contextmanager
def one_kernel_thread() -> Iterator[None]:
    """Keep BLAS to the calling thread for the time of a run.

    Replicas are what fills the processors, as in fluid, whose kernels are single-threaded by
    default. With more threads they would fight for cores, and matrix products would round
    differently on machines with another number of cores.
    """
    changed = [(lib, lib.num_threads) for lib in _blas_libraries() if lib.num_threads != 1]
    for lib, _ in changed:
        lib.set_num_threads(1)
    try:
        yield
    finally:
        for lib, old in changed:
            lib.set_num_threads(old)
