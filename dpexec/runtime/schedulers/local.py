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

from dpexec.core.places import available_cpus
from dpexec.runtime.lower import FETCH_KEY, to_dask
from dpexec.runtime.plan import Plan

__all__ = ["InFlight", "inline", "kernel_threads", "make_graph", "run_graph"]


class InFlight:
    """Counts tasks that are running, so that a failed run can wait for those it leaves behind."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = threading.Condition()

    def __enter__(self) -> None:
        with self._idle:
            self._count += 1

    def __exit__(self, *error: Any) -> None:
        with self._idle:
            self._count -= 1
            if not self._count:
                self._idle.notify_all()

    def wait(self) -> None:
        """Return when no task is running."""
        with self._idle:
            self._idle.wait_for(lambda: not self._count)


def make_graph(
    plan: Plan, run_task: Callable[..., Any], fetch: Callable[..., Any], in_flight: InFlight
) -> dict[Any, Any]:
    """The dask graph of a plan whose tasks share memory."""

    def counted(number: int, *_: Any) -> None:
        with in_flight:
            run_task(number)

    return to_dask(plan, counted, lambda *_: fetch())


def run_graph(
    graph: dict[Any, Any], pool: ThreadPoolExecutor | None, in_flight: InFlight
) -> list[Any]:
    """Run a dask graph in ``pool``, or on the calling thread alone; return the fetches.

    ``dask.diagnostics`` (ProgressBar, Profiler) and other dask callbacks work around this.
    """
    try:
        if pool is None:
            result: list[Any] = dask.local.get_sync(graph, FETCH_KEY)
        else:
            result = dask.threaded.get(graph, FETCH_KEY, pool=pool)
    finally:
        in_flight.wait()
    return result


def inline(
    plan: Plan, run_task: Callable[[int], Any], fetch: Callable[[], list[Any]]
) -> list[Any]:
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
