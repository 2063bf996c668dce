"""Values of a scope's variables: for runs, and as plain arrays to be sent or stored.

A value is an array, ``SelectedRows``, a ``TensorArray``, a ``LoDRankTable``, offsets of sequences,
or an array with such offsets.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.arrays import Entry, TensorArray
from dpexec.engine.core.copies import copy_on, with_arrays
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, LoDRankTable
from dpexec.engine.core.places import CPUPlace, Place
from dpexec.engine.core.scope import Scope, ScopeVariable
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray

__all__ = [
    "Flat",
    "bring_together",
    "content",
    "digest",
    "flat",
    "hold",
    "value_of",
    "with_sequences",
    "write",
]


# ---- in scopes


def content(var: ScopeVariable | None) -> Any:
    """A variable's value for a run, a tensor without its offsets; None if it has none."""
    held = None if var is None else var.value
    if isinstance(held, LoDTensor):
        return held.array
    if isinstance(held, SelectedRows):
        return held.view() if held._is_initialized() else None
    if isinstance(held, LoDTensorArray):
        return TensorArray(map(_entry, held))
    return held if isinstance(held, LoDRankTable) else None


def with_sequences(var: ScopeVariable | None) -> Any:
    """Like :func:`content`; an array that holds sequences comes with their offsets, as a pair."""
    held = None if var is None else var.value
    if isinstance(held, LoDTensor) and held._is_initialized() and held._lod:
        return held.array, Lod(held._lod)
    return content(var)


def _entry(tensor: LoDTensor) -> Entry | None:
    return (tensor.array, Lod(tensor._lod)) if tensor._is_initialized() else None


def bring_together(scope: Scope, names: Iterable[str]) -> None:
    """Fetch the values of variables that lie elsewhere, such as on a cluster, in few messages.

    Args:
        scope: has the variables.
        names: of these; whatever else there is stays as it is.
    """
    found: dict[Any, list[tuple[Any, Any, int]]] = {}
    for name in names:
        var = scope.find_var(name)
        held = None if var is None else var.value
        source = held.source if isinstance(held, LoDTensor) else None
        together = getattr(source, "together", None)
        if isinstance(held, LoDTensor) and together is not None:
            found.setdefault(together, []).append((held, source, held.version))
    for together, deferred in found.items():
        arrays = together([source for _, source, _ in deferred])
        for (tensor, *known), array in zip(deferred, arrays, strict=True):
            tensor.take(array, *known)


def hold(var: ScopeVariable, place: Place, value: Any) -> None:
    """Let a variable hold a value; a tensor keeps its offsets unless others come with the value.

    Args:
        var: of a scope.
        place: where the value lies.
        value: the value; it is not copied.
    """
    if isinstance(value, SelectedRows):
        var.value = var.value if isinstance(var.value, SelectedRows) else None
        var.get_selected_rows().hold(value, place)
    elif isinstance(value, TensorArray):
        var.value = var.value if isinstance(var.value, LoDTensorArray) else None
        var.get_lod_tensor_array()[:] = [_tensor(entry, place) for entry in value]
    elif isinstance(value, LoDRankTable):
        var.value = value
    else:
        array, lod = value if isinstance(value, tuple) else (value, None)
        var.value = var.value if isinstance(var.value, LoDTensor) else None
        tensor = var.get_tensor()
        tensor.array, tensor.place = array, place
        tensor._lod = tensor._lod if lod is None else lod.to_lists()


def write(var: ScopeVariable, value: Any) -> None:
    """Let a variable hold a copy of a value, on the device on which it had one, as users do.

    Args:
        var: of a scope.
        value: the value; an array without offsets has no sequences.
    """
    held = var.value if isinstance(var.value, LoDTensor | SelectedRows) else None
    place = CPUPlace() if held is None else held.place
    array, lod = value if isinstance(value, tuple) else (value, NO_SEQUENCES)
    copy = with_arrays(array, functools.partial(copy_on, place))
    hold(var, place, (copy, lod) if hasattr(copy, "__array__") else copy)
    if isinstance(var.value, LoDTensor | SelectedRows):
        var.value.touch()


def _tensor(entry: Entry | None, place: Place) -> LoDTensor:
    """An entry of an array of tensors as the user sees it; empty where nothing was written."""
    tensor = LoDTensor()
    if entry is not None:
        tensor.array, tensor.place = entry[0], place
        if entry[1]:
            tensor._lod = entry[1].to_lists()
    return tensor


# ---- as plain arrays


class Flat(NamedTuple):
    """A value as plain arrays.

    Args:
        kind: what it is: "tensor", "sequences", "rows", "array", "table" or "lod".
        arrays: all of it, one after another.
    """

    kind: str
    arrays: list[Any]


def flat(value: Any) -> Flat:
    """A value as plain arrays.

    Args:
        value: that of a variable.
    """
    if isinstance(value, SelectedRows):
        return Flat("rows", [value.row_array, np.array([value.height_]), value.value])
    if isinstance(value, TensorArray):
        levels = [-1 if entry is None else len(entry[1].levels) for entry in value]
        found = ([entry[0], *entry[1].levels] for entry in value if entry is not None)
        return Flat("array", [np.array(levels, np.int64), *itertools.chain(*found)])
    if isinstance(value, LoDRankTable):
        return Flat("table", [value.numbers, value.lengths, *value.coarse.levels])
    if isinstance(value, Lod):
        return Flat("lod", [*value.levels])
    if isinstance(value, tuple):
        return Flat("sequences", [value[0], *value[1].levels])
    return Flat("tensor", [value])


def value_of(kind: str, arrays: Sequence[Any]) -> Any:
    """The value that :func:`flat` made arrays of.

    Args:
        kind: what it is.
        arrays: all of it.

    Raises:
        ValueError: they are no such value.
    """
    left = iter(arrays)
    try:
        value = _MADE[kind](left)
    except (KeyError, StopIteration, IndexError) as error:
        raise ValueError(f"{len(arrays)} arrays are no value of kind {kind!r}") from error
    if next(left, None) is not None:
        raise ValueError(f"{len(arrays)} arrays are more than a value of kind {kind!r} has")
    return value


def _rows(arrays: Iterator[Any]) -> SelectedRows:
    rows, height, value = next(arrays), next(arrays), next(arrays)
    return SelectedRows(rows, int(height[0]), value)


def _array(arrays: Iterator[Any]) -> TensorArray:
    def entry(levels: int) -> Entry | None:
        return None if levels < 0 else (next(arrays), Lod(itertools.islice(arrays, levels)))

    return TensorArray([entry(levels) for levels in next(arrays).tolist()])


def _table(arrays: Iterator[Any]) -> LoDRankTable:
    return LoDRankTable.ranked(next(arrays), next(arrays), Lod(arrays))


_MADE: dict[str, Callable[[Iterator[Any]], Any]] = {
    "tensor": next,
    "sequences": lambda arrays: (next(arrays), Lod(arrays)),
    "rows": _rows,
    "array": _array,
    "table": _table,
    "lod": Lod,
}


def digest(value: Any) -> bytes:
    """A digest of a value on the host: two values with the same digest are equal.

    Args:
        value: that of a variable.
    """
    kind, arrays = flat(value)
    found = hashlib.sha256(kind.encode())
    for array in arrays:
        found.update(f"{array.dtype.str}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.digest()
