"""Processes of workers that have a nanny, which asks them to end, and kills them if it must."""

from __future__ import annotations

import atexit
import functools
import gc
import signal
from typing import Any

__all__ = ["end_at_once", "leave_interrupts_to_nanny"]


def leave_interrupts_to_nanny(worker: Any) -> None:
    """Let Ctrl-C not end a worker, and with it the state of its replicas.

    In a terminal or a notebook it reaches the processes of a ``LocalCluster``, too, but is meant
    for the one that trains.

    Args:
        worker: that of this process.
    """
    worker.loop.add_callback(signal.signal, signal.SIGINT, signal.SIG_IGN)  # on the main thread


@functools.cache
def end_at_once() -> None:
    """Let this process end without a last search for garbage.

    It looks several times at all that numba, dask and dpexec consist of, which takes half a second
    of a processor. On a busy machine that is longer than a nanny waits until it kills the process.
    """
    atexit.register(gc.freeze)
