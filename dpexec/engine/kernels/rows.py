"""Gathering of rows by position, and sequence masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.kernels.generate import compiled, single
from dpexec.engine.kernels.lowering import Code, Value, lowering
from dpexec.engine.kernels.machine import Count, Floats, Integers, kernel
from dpexec.engine.kernels.shapes import clear

__all__: list[str] = []

_POSITION = """\
def position_{kind}(
    n: Count, depth: Count, axis: Count, size: Count, index: {kind}, out: Integers
):
    for i in range(n):
        found = np.int64(index[i * depth + axis])
        if found < 0 or found >= size:
            return 1
        out[i] = out[i] * size + found if axis else found
    return 0
"""
"""Add an axis to positions; refuses indices out of range.

Arguments: number of positions, axes of an index, the axis, its size, the indices, positions.
"""
_PICK = """\
def pick_{kind}(n: Count, width: Count, places: Integers, x: {kind}, out: {kind}):
    for i in range(n):
        first = places[i] * width
        for j in range(width):
            out[i * width + j] = x[first + j]
    return 0
"""
"""Rows at positions. Arguments: how many, their width, positions, rows, results."""
_MASK = """\
def mask_{kind}_{made}(rows: Count, width: Count, x: {kind}, out: {made}):
    for i in range(rows):
        for j in range(width):
            out[i * width + j] = {one} if j < x[i] else {zero}
    return 0
"""
"""Ones, then zeros. Arguments: rows, their width, the number of ones in each, results."""

_NUMBERS = {"int64": "Integers", "int32": "Words"}
_ELEMENTS = {"float32": "Floats", "int64": "Integers"}
_positions = {d: compiled(f"position_{k}", _POSITION.format(kind=k)) for d, k in _NUMBERS.items()}
_picks = {d: compiled(f"pick_{k}", _PICK.format(kind=k)) for d, k in _ELEMENTS.items()}
_masks = {
    (given, made): compiled(
        f"mask_{kind}_{_ELEMENTS[made]}",
        _MASK.format(kind=kind, made=_ELEMENTS[made], one=one, zero=zero),
    )
    for given, kind in _NUMBERS.items()
    for made, one, zero in (("float32", "one", "zero"), ("int64", "1", "0"))
}


@kernel
def _put(n: Count, width: Count, places: Integers, x: Floats, out: Floats, adds: Count) -> int:
    """Write rows to their positions, in order: a later row overwrites an earlier one, or is added.

    Arguments: number of rows, their width, positions, rows, results, whether to add.
    """
    for i in range(n):
        first, given = places[i] * width, i * width
        if adds:
            for j in range(width):
                out[first + j] += x[given + j]
        else:
            for j in range(width):
                out[first + j] = x[given + j]
    return 0


def _places(code: Code, x: Value, index: Value, depth: int) -> Value:
    """Positions of indices, if the dimensions that an index names are merged into one."""
    n = index.size // depth
    places = code.scratch(n, dtype=np.int64)
    for axis in range(depth):
        numbers = n, depth, axis, x.shape[axis]
        code.emit(_positions[index.dtype.name], *numbers, index, places)
    return places


def _gather(code: Code, x: Value, index: Value, out: Value, depth: int) -> Any:
    if x.dtype.name not in _picks or index.dtype.name not in _positions:
        return False
    places = _places(code, x, index, depth)
    code.emit(_picks[x.dtype.name], places.size, math.prod(x.shape[depth:]), places, x, out)


def _scatter(
    code: Code, x: Value, index: Value, d_out: Value, dx: Value, depth: int, adds: bool
) -> Any:
    if not single(d_out) or index.dtype.name not in _positions:
        return False
    places = _places(code, x, index, depth)
    clear(code, dx)
    code.emit(_put, places.size, math.prod(x.shape[depth:]), places, d_out, dx, adds)


@lowering("gather")
def gather(code: Code, x: Value, index: Value, out: Value) -> Any:
    """One copy."""
    return _gather(code, x, index, out, 1)


@lowering("gather_grad")
def gather_grad(
    code: Code, x: Value, index: Value, d_out: Value, dx: Value, *, overwrite: bool
) -> Any:
    """Zeros, and one copy."""
    return _scatter(code, x, index, d_out, dx, 1, not overwrite)


@lowering("gather_nd")
def gather_nd(code: Code, x: Value, index: Value, out: Value) -> Any:
    """One copy."""
    return bool(index.shape[-1]) and _gather(code, x, index, out, index.shape[-1])


@lowering("gather_nd_grad")
def gather_nd_grad(code: Code, x: Value, index: Value, d_out: Value, dx: Value) -> Any:
    """Zeros, and one copy."""
    return bool(index.shape[-1]) and _scatter(code, x, index, d_out, dx, index.shape[-1], True)


@lowering("sequence_mask")
def sequence_mask(code: Code, x: Value, length: Value | None, out: Value) -> Any:
    """One pass, if the length of rows is known."""
    mask = _masks.get((x.dtype.name, out.dtype.name))
    if length is not None or mask is None:
        return False
    code.emit(mask, x.size, out.shape[-1], x, out)
