"""``elementwise_add``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ops._elementwise import (
    aligned,
    fusing,
    in_result,
    infer_flow,
    samples,
    unbroadcast,
)


@fusing(
    "elementwise_add",
    ulps=1,
    samples=samples(lambda r, shape: r.normal(shape)),
    folds=True,
    quantized="inputs outputs",
)
def elementwise_add(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x + y``, the smaller shape laid into the larger one from ``axis`` on.

    Source: Paddle op ``elementwise_add``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_add(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[3., 5.],
               [5., 7.]], dtype=float32)]
    """
    x, y = aligned(x, y, axis)
    return x + y


@elementwise_add.grad("X", "Y", "Out@GRAD", shape_inputs="X Y")
def elementwise_add_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient itself, summed over what was repeated."""
    return (
        unbroadcast(xp, d_out, x, y, axis) if needs[0] else None,
        unbroadcast(xp, d_out, y, x, axis) if needs[1] else None,
    )


@elementwise_add_grad.double_grad("Y", "DOut", "DDX?", "DDY?", outputs="DDOut", infer=infer_flow)
def elementwise_add_grad_grad(
    xp: Any, y: Any, d_out: Any, ddx: Any, ddy: Any, *, axis: int = -1
) -> Any:
    """``ddx + ddy``."""
    shape = d_out.shape
    return in_result(xp, ddx, shape, axis) + in_result(xp, ddy, shape, axis)
