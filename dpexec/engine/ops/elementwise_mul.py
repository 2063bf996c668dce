"""``elementwise_mul``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._elementwise import (
    aligned,
    fusing,
    in_result,
    infer_elementwise,
    samples,
    unbroadcast,
)


def _infer(x: Spec, y: Spec, *, axis: int = -1) -> Spec:
    if x.kind == VarType.SELECTED_ROWS:
        require(y.size in (1, -1), f"Y {y} must have one element where X is sparse")
        return x
    return infer_elementwise(x, y, axis=axis)


@fusing(
    "elementwise_mul",
    ulps=1,
    infer=_infer,
    sparse=("X",),
    samples=samples(lambda r, shape: r.normal(shape)),
    folds=True,
    quantized="outputs",
)
def elementwise_mul(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x * y``, the smaller shape laid into the larger one from ``axis`` on.

    A sparse X (a gradient that is clipped) takes one factor for all rows. Source: Paddle op
    ``elementwise_mul``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_mul(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[ 2.,  6.],
               [ 6., 12.]], dtype=float32)]
    """
    if isinstance(x, SelectedRows):
        return SelectedRows(x.row_array, x.height_, x.value * y.reshape(()))
    x, y = aligned(x, y, axis)
    return x * y


@elementwise_mul.grad("X", "Y", "Out@GRAD")
def elementwise_mul_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient times the other input, summed over what was repeated."""
    x_laid, y_laid = aligned(x, y, axis)
    return (
        unbroadcast(xp, d_out * y_laid, x, y, axis) if needs[0] else None,
        unbroadcast(xp, d_out * x_laid, y, x, axis) if needs[1] else None,
    )


def _infer_double(
    x: Spec, y: Spec, d_out: Spec, ddx: Spec | None, ddy: Spec | None
) -> tuple[Spec, Spec, Spec]:
    return x, y, d_out


@elementwise_mul_grad.double_grad(
    "X", "Y", "DOut", "DDX?", "DDY?", outputs="X@GRAD Y@GRAD DDOut", infer=_infer_double
)
def elementwise_mul_grad_grad(
    xp: Any,
    x: Any,
    y: Any,
    d_out: Any,
    ddx: Any,
    ddy: Any,
    *,
    axis: int = -1,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """``d_out * ddy`` for X, ``d_out * ddx`` for Y and ``ddx * y + x * ddy`` for ``d_out``."""
    ddx, ddy = (in_result(xp, v, d_out.shape, axis) for v in (ddx, ddy))
    x_laid, y_laid = aligned(x, y, axis)
    return (
        unbroadcast(xp, d_out * ddy, x, y, axis) if needs[0] else None,
        unbroadcast(xp, d_out * ddx, y, x, axis) if needs[1] else None,
        ddx * y_laid + x_laid * ddy if needs[2] else None,
    )
