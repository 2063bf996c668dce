"""Writes parameters received from servers into a scope."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.exchange.wire import GangError

__all__ = ["keep", "placed", "store"]


def store(scope: Scope, name: str, pieces: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Write a parameter.

    Args:
        scope: the scope of the parameter.
        name: name of the parameter.
        pieces: its blocks; for a sparse table only the changed rows.

    Returns:
        The new value; read-only.

    Raises:
        GangError: the pieces do not fit.
    """
    var = scope.find_var(name) or scope.var(name)
    tensor = var.get_tensor()
    rows = sum(p.height() if isinstance(p, SelectedRows) else len(p) for p in pieces)
    shape, dtype = (rows, *pieces[0].shape[1:]), pieces[0].dtype
    known = tensor._is_initialized()
    if known and (tuple(tensor.shape()), tensor.numpy().dtype) != (shape, dtype):
        raise GangError(f"servers have {name} as {shape} {dtype}, here it is {tensor.shape()}")
    array = tensor.numpy() if known else np.zeros(shape, dtype)
    for at, value in placed(pieces):
        array[at] = value
    keep(tensor, array)
    return array


def placed(pieces: Sequence[Any]) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
    """The positions of a parameter's blocks, and their values.

    Args:
        pieces: the blocks; for a sparse table only the changed rows.
    """
    begin = 0
    for piece in pieces:
        if isinstance(piece, SelectedRows):
            yield piece.row_array + begin, piece.value
            begin += piece.height()
        else:
            yield slice(begin, begin + len(piece)), piece
            begin += len(piece)


def keep(tensor: LoDTensor, array: np.ndarray[Any, Any]) -> None:
    """Set a tensor to an array, which may be the tensor's own array, changed in place.

    Args:
        tensor: a tensor of a scope.
        array: the new value.
    """
    if tensor.array is array:
        tensor.touch()
    else:
        tensor.set(array, tensor.place)
