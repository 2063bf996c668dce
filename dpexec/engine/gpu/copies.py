"""Copies to page-locked memory of the host, which the GPU makes while the host goes on."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.places import CUDAPlace, array_module

__all__ = ["to_host"]

_landing: list[tuple[Any, Any]] = []
"""Copies on their way, with their events: CuPy would give memory that nobody holds to others."""
_lock = threading.Lock()


def to_host(place: CUDAPlace, value: Any) -> tuple[Any, Any]:
    """A copy behind what is on the current stream, and the event that says that it is complete.

    Args:
        place: the GPU, which is current.
        value: what a variable holds.
    """
    cuda = array_module(place).cuda
    host = with_arrays(value, functools.partial(_begun, cuda))
    done = cuda.get_current_stream().record(cuda.Event(disable_timing=True))
    with _lock:
        _landing[:] = [(event, copy) for event, copy in _landing if not event.done]
        _landing.append((done, host))
    return host, done


def _begun(cuda: Any, array: Any) -> Any:
    memory = cuda.alloc_pinned_memory(max(array.nbytes, 1))
    host = np.ndarray(array.shape, array.dtype, buffer=memory)
    return array.get(out=host, blocking=False)
