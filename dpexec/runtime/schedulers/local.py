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

from dpexec.core.places import available_cpus
from dpexec.runtime.lower import FETCH_KEY, to_dask
from dpexec.runtime.plan import Plan

__all__ = ["inline", "kernel_threads", "make_graph", "run_graph"]


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
def kernel_threads(replicas: int) -> Iterator[None]:
    """Give every replica its share of the processors for the time of a run.

    The number depends on the machine and on the replicas alone, not on the scheduler, because
    with another number of threads a matrix product may round differently.
    """
    wanted = max(1, available_cpus() // replicas)
    libraries = [(lib, lib.num_threads) for lib in _blas_libraries()]
    changed = [(lib, old) for lib, old in libraries if old != wanted]
    for lib, _ in changed:
        lib.set_num_threads(wanted)
    try:
        yield
    finally:
        for lib, old in changed:
            lib.set_num_threads(old)
