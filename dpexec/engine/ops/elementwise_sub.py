"""``elementwise_sub`` and ``minus``."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op
from dpexec.engine.ops._elementwise import (
    aligned,
    fusing,
    in_result,
    infer_flow,
    samples,
    unbroadcast,
)
from dpexec.engine.ops._shapes import require_same_dtype, require_same_shape


@fusing(
    "elementwise_sub",
    ulps=1,
    samples=samples(lambda r, shape: r.normal(shape)),
    folds=True,
    quantized="inputs",
)
def elementwise_sub(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x - y``, the smaller shape laid into the larger one from ``axis`` on.

    Source: Paddle op ``elementwise_sub``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_sub(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[-1., -1.],
               [ 1.,  1.]], dtype=float32)]
    """
    x, y = aligned(x, y, axis)
    return x - y


@elementwise_sub.grad("X", "Y", "Out@GRAD", shape_inputs="X Y")
def elementwise_sub_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient for X and its negative for Y, summed over what was repeated."""
    return (
        unbroadcast(xp, d_out, x, y, axis) if needs[0] else None,
        -unbroadcast(xp, d_out, y, x, axis) if needs[1] else None,
    )


@elementwise_sub_grad.double_grad("Y", "DOut", "DDX?", "DDY?", outputs="DDOut", infer=infer_flow)
def elementwise_sub_grad_grad(
    xp: Any, y: Any, d_out: Any, ddx: Any, ddy: Any, *, axis: int = -1
) -> Any:
    """``ddx - ddy``."""
    shape = d_out.shape
    return in_result(xp, ddx, shape, axis) - in_result(xp, ddy, shape, axis)


def _infer_minus(x: Spec, y: Spec) -> Spec:
    require_same_dtype(x, y)
    require_same_shape(x, y)
    return x


@op(
    "minus",
    inputs="X Y",
    infer=_infer_minus,
    samples=lambda r: [
        Sample({"X": r.normal(shape), "Y": r.normal(shape)}) for shape in ((3, 4), (2, 3, 2), (5,))
    ],
    operand_ulps=1,
)
def minus(xp: Any, x: Any, y: Any) -> Any:
    """``x - y`` of tensors of one shape. Source: Paddle op ``minus``."""
    return x - y


@minus.grad_maker
def minus_grad(context: GradContext) -> list[GradOp]:
    """The gradient and its negative, by ``scale``, as in Paddle."""
    d_out = {"X": context.output_grads["Out"]}
    return [
        GradOp("scale", d_out, {"Out": context.input_grads[slot]}, {"scale": factor})
        for slot, factor in (("X", 1.0), ("Y", -1.0))
        if any(context.input_grads[slot])
    ]
