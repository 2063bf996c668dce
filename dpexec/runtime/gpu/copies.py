"""Copies to page-locked memory of the host, which the GPU makes while the host goes on."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from dpexec.core.places import CUDAPlace, array_module
from dpexec.core.tensors import SelectedRows

__all__ = ["to_host"]

_landing: list[tuple[Any, Any]] = []
"""Copies on their way, with their events: CuPy would give memory that nobody holds to others."""
_lock = threading.Lock()


def to_host(place: CUDAPlace, value: Any) -> tuple[Any, Any]:
    """A copy behind what is on the current stream, and the event that says that it is complete.

    Args:
        place: the GPU, which is current.
        value: an array or SelectedRows.
    """
    cuda = array_module(place).cuda
    host = _begun(cuda, value)
    done = cuda.get_current_stream().record(cuda.Event(disable_timing=True))
    with _lock:
        _landing[:] = [(event, copy) for event, copy in _landing if not event.done]
        _landing.append((done, host))
    return host, done


def _begun(cuda: Any, value: Any) -> Any:
    if isinstance(value, SelectedRows):
        rows, values = _begun(cuda, value.row_array), _begun(cuda, value.value)
        return SelectedRows(rows, value.height_, values)
    memory = cuda.alloc_pinned_memory(max(value.nbytes, 1))
    host = np.ndarray(value.shape, value.dtype, buffer=memory)
    return value.get(out=host, blocking=False)
