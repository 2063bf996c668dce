"""``diag_embed``, ``trace`` and ``tril_triu``: operators on diagonals of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_axis


def _length(height: int, width: int, offset: int) -> int:
    """Elements of a diagonal."""
    return max(0, min(height, width - offset) if offset >= 0 else min(height + offset, width))


def _infer_embed(x: Spec, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Spec:
    require(x.rank, f"Input {x} must have a dimension")
    made = Spec((0,) * (x.rank + 1))
    first = require_axis(dim1, made, "Out", "dim1")
    second = require_axis(dim2, made, "Out", "dim2")
    require(first != second, f"dim1 and dim2 are {dim1} and {dim2}, but must be two axes")
    shape = list(x.shape[:-1])
    size = -1 if x.shape[-1] < 0 else x.shape[-1] + abs(offset)
    for axis in sorted((first, second)):
        shape.insert(axis, size)
    return x.replace(shape=tuple(shape), lod_level=0)


@op(
    "diag_embed",
    inputs="Input",
    infer=_infer_embed,
    no_grad=True,
    samples=lambda r: [
        Sample({"Input": r.normal((2, 3))}),
        Sample({"Input": r.normal((2, 3))}, {"offset": -1, "dim1": 0, "dim2": 2}),
        Sample({"Input": r.normal((2, 3))}, {"offset": 1, "dim1": 1, "dim2": 0}),
        Sample(
            {"Input": np.array([1, 2])},
            {"offset": 1},
            expected={"Out": np.array([[0, 1, 0], [0, 0, 2], [0, 0, 0]])},
        ),
    ],
)
def diag_embed(xp: Any, x: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """Matrices over ``dim1`` and ``dim2`` with the last dimension of X as a diagonal.

    It is ``offset`` above the main diagonal; below it if negative. Source: Paddle op
    ``diag_embed``.
    """
    length = x.shape[-1]
    size = length + abs(offset)
    made = xp.zeros((*x.shape[:-1], size, size), dtype=x.dtype)
    steps = xp.arange(length)
    made[..., steps + max(-offset, 0), steps + max(offset, 0)] = x
    return xp.moveaxis(made, (-2, -1), (dim1, dim2))


def _infer_trace(x: Spec, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Spec:
    first = require_axis(dim1, x, "Input", "dim1")
    second = require_axis(dim2, x, "Input", "dim2")
    require(first != second, f"dim1 and dim2 are {dim1} and {dim2}, but must be two axes")
    shape = tuple(size for axis, size in enumerate(x.shape) if axis not in (first, second))
    return x.replace(shape=shape or (1,), lod_level=0)


@op(
    "trace",
    inputs="Input",
    infer=_infer_trace,
    samples=lambda r: [
        Sample({"Input": r.normal((3, 4))}, {"offset": 1}),
        Sample({"Input": r.normal((2, 3, 4))}, {"offset": -1, "dim1": 0, "dim2": 2}),
        Sample({"Input": r.normal((2, 3, 3, 2))}, {"dim1": 2, "dim2": 1}),
        Sample(
            {"Input": r.normal((2, 3, 3, 2))},
            {"offset": -1, "dim1": 2, "dim2": 1},
            deviates=dict.fromkeys(
                ("Out", "Input@GRAD"),
                "applies offset as if dim1 came before dim2; dpexec counts from dim1 to dim2, "
                "as NumPy does",
            ),
        ),
        Sample({"Input": r.normal((2, 3))}, {"offset": 5}),
        Sample({"Input": np.array([[1, 2], [3, 4]])}, expected={"Out": np.array([5])}),
    ],
    operand_ulps=2,
)
def trace(xp: Any, x: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """The sum of a diagonal of each matrix over ``dim1`` and ``dim2``.

    It is ``offset`` above the main diagonal; below it if negative. Source: Paddle op ``trace``.
    """
    total = xp.trace(x, offset=offset, axis1=dim1, axis2=dim2, dtype=x.dtype)
    return total.reshape(total.shape or (1,))


@trace.grad("Input", "Out@GRAD", dense=True, operand_ulps=1)
def trace_grad(
    xp: Any, x: Any, d_out: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> Any:
    """The gradient at every element of the diagonal, 0 elsewhere."""
    d_x = xp.zeros(x.shape, dtype=x.dtype)
    matrices = xp.moveaxis(d_x, (dim1, dim2), (-2, -1))
    steps = xp.arange(_length(matrices.shape[-2], matrices.shape[-1], offset))
    grad = d_out.reshape(*matrices.shape[:-2], 1)
    matrices[..., steps + max(-offset, 0), steps + max(offset, 0)] = grad
    return d_x


def _infer_tril_triu(x: Spec) -> Spec:
    require(x.rank >= 2, f"X {x} must have at least 2 dimensions")
    return x


@op(
    "tril_triu",
    inputs="X",
    infer=_infer_tril_triu,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}, {"lower": True}),
        Sample({"X": r.normal((3, 4))}, {"lower": False, "diagonal": -1}),
        Sample({"X": r.normal((2, 3, 3))}, {"lower": True, "diagonal": 1}),
        Sample(
            {"X": np.array([[1, 2], [3, 4]])},
            {"lower": False},
            expected={"Out": np.array([[1, 2], [0, 4]])},
        ),
    ],
)
def tril_triu(xp: Any, x: Any, *, diagonal: int = 0, lower: bool) -> Any:
    """The triangle of each matrix below and on a diagonal, or above and on it; 0 elsewhere.

    Source: Paddle op ``tril_triu``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.ones((2, 2), "float32"))
        ...     both = [fluid.layers.tril(x), fluid.layers.triu(x)]
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=both)
        [array([[1., 0.],
               [1., 1.]], dtype=float32), array([[1., 1.],
               [0., 1.]], dtype=float32)]
    """
    return xp.tril(x, diagonal) if lower else xp.triu(x, diagonal)


@tril_triu.grad("Out@GRAD", outputs="X@GRAD", dense=True)
def tril_triu_grad(xp: Any, d_out: Any, *, diagonal: int = 0, lower: bool = True) -> Any:
    """The same triangle of the gradient."""
    return tril_triu(xp, d_out, diagonal=diagonal, lower=lower)
