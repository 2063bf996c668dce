"""``gather`` and ``gather_nd``: elements chosen by their positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import taken_rows
from dpexec.engine.ops._rows import added_rows, check_rows, require_row_numbers
from dpexec.engine.ops._shapes import require_integer


def _infer(x: Spec, index: Spec) -> Spec:
    require(x.rank, f"X {x} has no rows")
    count = require_row_numbers(index, "Index")
    return x.replace(shape=(count, *x.shape[1:]), lod_level=0)


@op(
    "gather",
    inputs="X Index",
    infer=_infer,
    attrs={"overwrite": True},
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((3, 2)), "Index": np.array([2, 0, 2])}, {"overwrite": False}),
        Sample({"X": r.normal((3,)), "Index": np.array([[1], [1]])}, {"overwrite": False}),
        Sample({"X": r.normal((3, 2, 2)), "Index": np.array([1, 0], dtype=np.int32)}),
        Sample(
            {"X": np.array([[1.0, 2.0], [3.0, 4.0]]), "Index": np.array([1, 1])},
            grad=(),
            expected={"Out": np.array([[3.0, 4.0], [3.0, 4.0]])},
        ),
    ],
    makes_numbers=True,
    grad_lod="own",
    precision="gray",
    quantized="inputs",
    flops=0,
    bytes=taken_rows("Index"),
)
def gather(xp: Any, x: Any, index: Any) -> Any:
    """The rows of ``x`` with the numbers ``Index``. Source: Paddle op ``gather``.

    ``overwrite`` affects the gradient of rows that are chosen several times.

    Raises:
        ValueError: there is no such row.
    """
    rows = index.reshape(-1)
    check_rows(xp, rows, x.shape[0], "Index")
    return x[rows]


@gather.grad("X", "Index", "Out@GRAD", outputs="X@GRAD")
def gather_grad(xp: Any, x: Any, index: Any, d_out: Any, *, overwrite: bool = True) -> Any:
    """The sum of the gradients of a row's copies; with ``overwrite`` that of the last copy."""
    rows = index.reshape(-1)
    if not overwrite:
        return added_rows(xp, rows, d_out, x.shape)
    grad = xp.zeros(x.shape, d_out.dtype)
    grad[rows] = d_out
    return grad


def _infer_nd(x: Spec, index: Spec) -> Spec:
    require_integer(index, "Index")
    require(
        index.rank >= 2 and index.shape[-1] <= x.rank,
        f"Index {index} must have two dimensions or more, the last at most the rank of X {x}",
    )
    return x.replace(shape=(*index.shape[:-1], *x.shape[index.shape[-1] :]) or (1,))


def flat_positions(xp: Any, shape: tuple[int, ...], index: Any) -> Any:
    """Positions in the array after the dimensions that Index addresses are merged into one."""
    flat = xp.zeros(index.shape[:-1], np.int64)
    for axis in range(index.shape[-1]):
        flat = flat * shape[axis] + index[..., axis]
    return flat.reshape(-1)


@op(
    "gather_nd",
    inputs="X Index",
    infer=_infer_nd,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 2)), "Index": np.array([[0, 1], [1, 2], [0, 1]])}),
        Sample({"X": r.normal((2, 3)), "Index": np.array([[[1]], [[0]]])}),
        Sample({"X": r.normal((2, 3)), "Index": np.zeros((4, 0), np.int64)}),
        Sample(
            {"X": np.arange(6.0).reshape(2, 3), "Index": np.array([[1, 2], [0, 0]])},
            expected={"Out": np.array([5.0, 0.0])},
        ),
    ],
    grad_lod="own",
    flops=0,
)
def gather_nd(xp: Any, x: Any, index: Any) -> Any:
    """The elements, or slices, of ``x`` at the positions in the last dimension of ``Index``.

    If that dimension has no elements, each result is all of ``x``. Source: Paddle op ``gather_nd``.

    Raises:
        ValueError: there is no such position.
    """
    depth = index.shape[-1]
    for axis in range(depth):
        check_rows(xp, index[..., axis], x.shape[axis], f"Index for dimension {axis}")
    if not depth:
        return xp.broadcast_to(x, (*index.shape[:-1], *x.shape)).copy()
    out = x[tuple(index[..., axis] for axis in range(depth))]
    return out if out.ndim else out.reshape(1)


@gather_nd.grad("X", "Index", "Out@GRAD", outputs="X@GRAD")
def gather_nd_grad(xp: Any, x: Any, index: Any, d_out: Any) -> Any:
    """The gradients of all copies of an element, added up."""
    depth = index.shape[-1]
    merged = (math.prod(x.shape[:depth]), *x.shape[depth:])
    return added_rows(xp, flat_positions(xp, x.shape, index), d_out, merged).reshape(x.shape)


gather_nd_grad.grad_is(gather_nd)
