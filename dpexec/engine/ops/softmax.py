"""``softmax``: exponentials that sum to one along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._costs import SOFTMAX
from dpexec.engine.ops._shapes import require_float

SMALLEST_LOGIT = -64
"""The lower limit of shifted logits, as in Paddle: no probability becomes 0 or a denormal."""


def softmax_powers(xp: Any, x: Any, axis: int) -> Any:
    """The exponentials that a softmax along an axis normalizes, in a new array."""
    out = x - x.max(axis=axis, keepdims=True)
    xp.maximum(out, SMALLEST_LOGIT, out=out)
    return xp.exp(out, out=out)


def softmax_array(xp: Any, x: Any, axis: int) -> Any:
    """The softmax of an array along an axis, in a new array."""
    out = softmax_powers(xp, x, axis)
    out /= out.sum(axis=axis, keepdims=True)
    return out


def _infer(x: Spec, *, axis: int = -1) -> Spec:
    require_float(x)
    require(x.rank and -x.rank <= axis < x.rank, f"axis {axis} is not an axis of X {x}")
    return x


@op(
    "softmax",
    inputs="X",
    infer=_infer,
    attrs={"use_cudnn": False, "use_mkldnn": False, "data_format": "AnyLayout", "is_test": False},
    fixed={"data_format": ""},
    samples=lambda r: [
        Sample({"X": r.normal((3, 5))}),
        Sample({"X": r.normal((2, 4, 3))}, {"axis": 1}),
        Sample(
            {"X": np.array([[0.0, 0.0, -200.0]])},
            expected={"Out": np.array([[0.5, 0.5, 8.019054e-29]])},
        ),
        Sample({"X": np.array([[0.0, 100.0, -200.0], [3.0, 3.0, 3.0]])}),
    ],
    operand_ulps=4,
    capturable=True,
    precision="black",
    fuses=True,
    quantized="inputs outputs",
    flops=per_element("Out", SOFTMAX),
)
def softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """``exp(x) / sum(exp(x))`` along ``axis``. Source: Paddle op ``softmax``.

    Args:
        axis: the axis along which results sum to 1.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([0.0, 1.0, 2.0], "float32"))
        ...     out = fluid.layers.ops.softmax(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(3)
        array([0.09 , 0.245, 0.665], dtype=float32)
    """
    return softmax_array(xp, x, axis)


@softmax.grad("Out", "Out@GRAD", dense=True, operand_ulps=2)
def softmax_grad(xp: Any, out: Any, d_out: Any, *, axis: int = -1) -> Any:
    """``out * (d_out - sum(out * d_out))``."""
    product = out * d_out
    total = product.sum(axis=axis, keepdims=True)
    product -= out * total
    return product


@softmax_grad.double_grad(
    "Out", "DOut", "DDX", outputs="Out@GRAD DDOut", infer=lambda out, d_out, ddx: (out, d_out)
)
def softmax_grad_grad(
    xp: Any, out: Any, d_out: Any, ddx: Any, *, axis: int = -1
) -> tuple[Any, Any]:
    """``ddx * (d_out - sum(out * d_out)) - d_out * sum(out * ddx)`` for Out; for d_out as for X."""
    first = (out * d_out).sum(axis=axis, keepdims=True)
    second = (out * ddx).sum(axis=axis, keepdims=True)
    return ddx * (d_out - first) - d_out * second, softmax_grad(xp, out, ddx, axis=axis)
