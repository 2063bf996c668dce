"""Tasks of dpexec begin on a worker though long tasks of the user occupy its threads.

Dask runs as many tasks at a time as a worker has threads. Members of a gang wait for each other,
and training waits for replicas that move. Both would wait as long as the longest task that the user
runs beside them. So tasks of dpexec get as many slots of their own as the worker has threads.
"""

from __future__ import annotations

import time
from operator import attrgetter
from typing import Any

from distributed.collections import HeapSet
from distributed.worker_state_machine import UnpauseEvent

from dpexec.engine.dask.annotations import OURS

__all__ = ["begin_waiting"]

_priority = attrgetter("priority")


def begin_waiting(worker: Any) -> None:
    """Let tasks of dpexec begin that wait for a slot while tasks of the user have all of them.

    Args:
        worker: a dask worker, on whose event loop this is called.
    """
    state = worker.state
    threads, ready, constrained = state.nthreads, state.ready, state.constrained
    if not ready or not state.running or len(state.executing) < threads:
        return
    free = threads - sum(OURS in task.annotations for task in state.executing)
    waiting = sorted((task for task in ready if OURS in task.annotations), key=_priority)
    if not waiting[:free]:
        return
    # Dask has no call for this. For the time of one event, its queue holds the chosen tasks alone,
    # and there are threads enough for them.
    chosen = HeapSet[Any](key=_priority)
    for task in waiting[:free]:
        ready.discard(task)
        chosen.add(task)
    pool = worker.executors["default"]
    pool._max_workers = max(pool._max_workers, 2 * threads)
    state.ready, state.constrained = chosen, HeapSet[Any](key=_priority)
    state.nthreads = len(state.executing) + len(chosen)
    try:
        worker.handle_stimulus(UnpauseEvent(stimulus_id=f"dpexec-slots-{time.time()}"))
    finally:
        state.ready, state.constrained, state.nthreads = ready, constrained, threads
