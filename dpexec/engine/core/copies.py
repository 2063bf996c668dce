"""Copies of arrays between devices, in the order of the devices' current streams."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import numpy as np

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.core.places import CUDAPlace, Place, array_module, on_device
from dpexec.engine.core.selected_rows import SelectedRows

__all__ = ["array_on", "copy_on", "value_on", "values_on", "with_arrays"]

_Key = TypeVar("_Key", bound=Hashable)
_ON_HOST = frozenset({np.ndarray})


def with_arrays(value: Any, function: Callable[[Any], Any]) -> Any:
    """A variable's value with each of its arrays replaced.

    Args:
        value: an array, SelectedRows or a TensorArray. Whatever else variables hold lies on the
            host, such as offsets of sequences, and is returned as it is.
        function: takes an array and returns its replacement.
    """
    if isinstance(value, SelectedRows):
        return SelectedRows(function(value.row_array), value.height_, function(value.value))
    if isinstance(value, TensorArray):
        return TensorArray(entry and (function(entry[0]), entry[1]) for entry in value)
    return function(value) if hasattr(value, "__array__") else value


def value_on(place: Place, value: Any) -> Any:
    """A variable's value with all arrays on a device, see :func:`array_on`."""
    return with_arrays(value, lambda array: array_on(place, array))


def values_on(place: Place, values: Mapping[_Key, Any]) -> dict[_Key, Any]:
    """Some values with all arrays on a device; an array that keys share stays shared.

    Args:
        place: the device.
        values: of variables.
    """
    if not isinstance(place, CUDAPlace) and _ON_HOST.issuperset(map(type, values.values())):
        return dict(values)  # as in most steps
    moved: dict[int, Any] = {}
    for value in values.values():
        if id(value) not in moved:
            moved[id(value)] = value_on(place, value)
    return {key: moved[id(value)] for key, value in values.items()}


def copy_on(place: Place, array: Any) -> Any:
    """A copy of an array on a device; see :func:`array_on` for the order of things."""
    made = array_on(place, array)
    if made is not array:
        return made
    with on_device(place):
        return array_module(place).array(array)


def array_on(place: Place, array: Any) -> Any:
    """The array itself if it is on a device, else a copy there.

    Work on GPUs is only enqueued: a copy between two GPUs waits for the source's current stream,
    and the current streams of both wait for the copy. A copy to the host waits for the source's
    current stream.

    Args:
        place: the device.
        array: of NumPy, or of CuPy on any GPU.
    """
    on_host = isinstance(array, np.ndarray)
    if not isinstance(place, CUDAPlace):
        return array if on_host else _fetched(array)
    if on_host:
        with on_device(place):
            return array_module(place).asarray(array)
    return array if array.device.id == place.device_id else _between(array, place)


def _fetched(array: Any) -> Any:
    """A copy on the host."""
    with array.device:  # whose current stream counts
        return array.get()


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
