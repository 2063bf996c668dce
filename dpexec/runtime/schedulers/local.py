"""Schedulers of one process: dask's threads, dask's synchronous one, and a plain loop."""

from __future__ import annotations

import contextlib
import functools
import threading
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


class _KernelThreads:
    """The BLAS libraries' own threads, limited while at least one run goes on in the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._before: list[tuple[Any, int]] = []

    def limit(self) -> None:
        with self._lock:
            self._runs += 1
            for lib in _blas_libraries():
                threads = lib.num_threads
                if threads != 1:
                    self._before.append((lib, threads))
                    lib.set_num_threads(1)

    def restore(self) -> None:
        with self._lock:
            self._runs -= 1
            if self._runs == 0:
                for lib, threads in self._before:
                    lib.set_num_threads(threads)
                self._before.clear()


_kernel_threads = _KernelThreads()


@contextlib.contextmanager
def one_kernel_thread() -> Iterator[None]:
    """Keep BLAS to the calling thread for the time of a run.

    Replicas are what fills the processors, as in fluid, whose kernels are single-threaded by
    default. With more threads they would fight for cores, and matrix products would round
    differently on machines with another number of cores. The limit holds for the whole process,
    so of runs that overlap (in several Python threads) the last one lifts it.
    """
    _kernel_threads.limit()
    try:
        yield
    finally:
        _kernel_threads.restore()
