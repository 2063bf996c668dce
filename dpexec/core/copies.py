"""Copies of arrays between devices, in the order of the devices' current streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.core.places import CUDAPlace, Place, array_module, on_device

__all__ = ["array_on", "copy_on"]


def copy_on(place: Place, array: Any) -> Any:
    """A copy of an array on a device; see :func:`array_on` for the order of things."""
    made = array_on(place, array)
    if made is not array:
        return made
    with on_device(place):
        return array_module(place).array(array)


def array_on(place: Place, array: Any) -> Any:
    """The array itself if it is on a device, else a copy there.

    Work on GPUs is only enqueued: a copy between two of them comes after what is on the source's
    current stream, and both current streams go on after it. A copy to the host waits for the
    source's current stream.

    Args:
        place: the device.
        array: of NumPy, or of CuPy on any GPU.
    """
    on_host = isinstance(array, np.ndarray)
    if not isinstance(place, CUDAPlace):
        return array if on_host else array.get()
    if on_host:
        with on_device(place):
            return array_module(place).asarray(array)
    return array if array.device.id == place.device_id else _between(array, place)


def _between(array: Any, place: CUDAPlace) -> Any:
    """A copy on another GPU."""
    cupy = array_module(place)
    with array.device:
        source = cupy.cuda.get_current_stream()
        array = cupy.ascontiguousarray(array)  # peers copy whole blocks
        ready = source.record()
    with on_device(place):
        target = cupy.cuda.get_current_stream()
        target.wait_event(ready)
        copy = array.copy()
        source.wait_event(target.record())  # only then may its memory be used again
    return copy
