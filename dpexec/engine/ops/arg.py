"""Positions by order: ``arg_max``, ``arg_min``, ``argsort``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._shapes import require_axis


def _infer(x: Spec, *, axis: int, keepdims: bool = False, dtype: int = -1) -> Spec:
    at = require_axis(axis, x)
    shape = (*x.shape[:at], *((1,) if keepdims else ()), *x.shape[at + 1 :])
    return Spec(shape, VarType.INT64 if dtype < 0 else as_var_type(dtype))


def _finish(xp: Any, indices: Any, axis: int, keepdims: bool, dtype: int) -> Any:
    if keepdims:
        indices = indices[(slice(None),) * (axis % (indices.ndim + 1)) + (None,)]
    kind = np.dtype(np.int64) if dtype < 0 else to_numpy(dtype)
    return xp.asarray(indices, kind)


@op(
    "arg_max",
    inputs="X",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]])},
            {"axis": -1},
            expected={"Out": np.array([1, 0])},
        ),
        Sample({"X": r.distinct((2, 3, 4))}, {"axis": 1, "keepdims": True}),
        Sample({"X": r.distinct((4,))}, {"axis": 0}),
        Sample({"X": r.distinct((2, 3, 2))}, {"axis": -2}),
    ],
)
def arg_max(xp: Any, x: Any, *, axis: int, keepdims: bool = False, dtype: int = -1) -> Any:
    """Positions of the largest elements along ``axis``; of equal ones, the first.

    Source: Paddle op ``arg_max``.

    See Also:
        :func:`~dpexec.layers.topk`: the largest elements with their places.
        :func:`~dpexec.layers.argsort`: all elements in order.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 3.0], [4.0, 2.0]], "float32"))
        ...     out = fluid.layers.argmax(x, axis=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1, 0])]
    """
    return _finish(xp, xp.argmax(x, axis=axis), axis, keepdims, dtype)


@op(
    "arg_min",
    inputs="X",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([[1.0, 0.0, 0.0], [2.0, 3.0, 1.0]])},
            {"axis": 1},
            expected={"Out": np.array([1, 2])},
        ),
        Sample({"X": r.distinct((2, 3))}, {"axis": 0}),
        Sample({"X": r.distinct((2, 3, 2))}, {"axis": -2, "keepdims": True}),
    ],
)
def arg_min(xp: Any, x: Any, *, axis: int, keepdims: bool = False, dtype: int = -1) -> Any:
    """Positions of the smallest elements along ``axis``; of equal ones, the first.

    Source: Paddle op ``arg_min``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 3.0], [4.0, 2.0]], "float32"))
        ...     out = fluid.layers.argmin(x, axis=1)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0, 1])]
    """
    return _finish(xp, xp.argmin(x, axis=axis), axis, keepdims, dtype)


def _infer_sort(x: Spec, *, axis: int = -1) -> tuple[Spec, Spec]:
    require_axis(axis, x)
    return x, x.replace(dtype=VarType.INT64)


@op(
    "argsort",
    inputs="X",
    outputs="Out Indices",
    infer=_infer_sort,
    samples=lambda r: [
        Sample({"X": r.distinct((3, 4))}),
        Sample({"X": r.distinct((3, 4))}, {"axis": 0, "descending": True}),
        Sample(
            {"X": np.array([2.0, 1.0, 2.0])},
            {"descending": True},
            smooth=False,
            expected={"Out": np.array([2.0, 2.0, 1.0]), "Indices": np.array([0, 2, 1])},
        ),
    ],
    grad_lod="own",
)
def argsort(xp: Any, x: Any, *, axis: int = -1, descending: bool = False) -> Any:
    """The elements sorted along ``axis``, and their old positions; equal ones keep their order.

    Source: Paddle op ``argsort``.
    """
    indices = xp.argsort(-x if descending else x, axis=axis, kind="stable")
    return xp.take_along_axis(x, indices, axis=axis), indices.astype(np.int64)


@argsort.grad("X", "Indices", "Out@GRAD", outputs="X@GRAD")
def argsort_grad(xp: Any, x: Any, indices: Any, d_out: Any, *, axis: int = -1) -> Any:
    """Every gradient goes to the old position of its element."""
    d_x = xp.empty_like(d_out)
    xp.put_along_axis(d_x, indices, d_out, axis=axis)
    return d_x
