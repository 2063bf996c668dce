"""Asynchronous copies from a GPU to page-locked host memory."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np

from dpexec.engine.core.copies import with_arrays
from dpexec.engine.core.places import CUDAPlace, array_module

__all__ = ["to_host"]

_landing: list[tuple[Any, Any]] = []
"""Pending copies with their events; without this reference CuPy would reuse their memory."""
_lock = threading.Lock()


def to_host(place: CUDAPlace, value: Any) -> tuple[Any, Any]:
    """Enqueue a copy on the current stream; returns it with the event of its completion.

    Args:
        place: the GPU, which is current.
        value: the value of a variable.
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
