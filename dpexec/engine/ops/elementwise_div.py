"""``elementwise_div``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._elementwise import aligned, fusing, in_result, samples, unbroadcast
from dpexec.engine.ops._integers import truncated_quotient


@fusing(
    "elementwise_div",
    ulps=1,
    checks_values=True,
    samples=samples(
        lambda r, shape: r.normal(shape), lambda r, shape: r.away_from(0.0, shape, 0.5)
    ),
)
def elementwise_div(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x / y``, the smaller shape laid into the larger one from ``axis`` on.

    The quotient of integers is rounded towards zero. Source: Paddle op ``elementwise_div``.

    Raises:
        ValueError: an integer is divided by zero.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_div(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.5   , 0.6667],
               [1.5   , 1.3333]], dtype=float32)
    """
    x, y = aligned(x, y, axis)
    if np.issubdtype(x.dtype, np.integer):
        return truncated_quotient(xp, x, y)
    return x / y


@elementwise_div.grad("X", "Y", "Out", "Out@GRAD", outputs="X@GRAD Y@GRAD")
def elementwise_div_grad(
    xp: Any, x: Any, y: Any, out: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """``d_out / y`` for X and ``-d_out * out / y`` for Y, summed over what was repeated."""
    _, y_laid = aligned(x, y, axis)
    quotient = d_out / y_laid
    return (
        unbroadcast(xp, quotient, x, y, axis) if needs[0] else None,
        -unbroadcast(xp, quotient * out, y, x, axis) if needs[1] else None,
    )


def _infer_double(
    y: Spec, out: Spec, dx: Spec, ddx: Spec | None, ddy: Spec | None
) -> tuple[Spec, Spec, Spec]:
    require(
        dx.shape == out.shape,
        f"the gradient of elementwise_div_grad needs an X of the shape of Out {out}, but X, "
        f"which is repeated, is {dx}",
    )
    return y, out, out


@elementwise_div_grad.double_grad(
    "Y", "Out", "DX", "DDX?", "DDY?", outputs="Y@GRAD DOut DDOut", infer=_infer_double
)
def elementwise_div_grad_grad(
    xp: Any,
    y: Any,
    out: Any,
    dx: Any,
    ddx: Any,
    ddy: Any,
    *,
    axis: int = -1,
    needs: tuple[bool, bool, bool],
) -> tuple[Any, Any, Any]:
    """``dx * (out * ddy - ddx) / y`` for Y, ``-dx * ddy`` for Out, ``(ddx - out * ddy) / y``.

    ``dx`` is the gradient of X, ``d_out / y``.
    """
    ddx, ddy = (in_result(xp, v, out.shape, axis) for v in (ddx, ddy))
    _, y_laid = aligned(out, y, axis)
    ddout = (ddx - out * ddy) / y_laid
    return (
        unbroadcast(xp, -dx * ddout, y, out, axis) if needs[0] else None,
        -dx * ddy if needs[1] else None,
        ddout if needs[2] else None,
    )
