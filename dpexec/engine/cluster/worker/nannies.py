"""Processes of workers with a nanny, which asks them to end, and kills them after a while."""

from __future__ import annotations

import atexit
import functools
import gc
import signal
from typing import Any

__all__ = ["end_at_once", "leave_interrupts_to_nanny"]


def leave_interrupts_to_nanny(worker: Any) -> None:
    """Make a worker ignore Ctrl-C, which would end it and lose the state of its replicas.

    In a terminal or a notebook, Ctrl-C also reaches the processes of a ``LocalCluster``, but it is
    meant for the process that trains.

    Args:
        worker: the dask worker of this process.
    """
    worker.loop.add_callback(signal.signal, signal.SIGINT, signal.SIG_IGN)  # on the main thread


@functools.cache
def end_at_once() -> None:
    """Let this process end without a last garbage collection.

    That visits all objects of numba, dask and dpexec several times, which takes half a second of
    processor time. On a busy machine a nanny would kill the process before it has ended.
    """
    atexit.register(gc.freeze)
