"""``cumsum``: running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, Spec, op
from dpexec.engine.ops._shapes import require_axis

_X = np.arange(1.0, 7.0).reshape(2, 3)


def _infer(x: Spec, *, axis: int = -1) -> Spec:
    require_axis(axis, x)
    return x


@op(
    "cumsum",
    inputs="X",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"axis": 0}),
        Sample({"X": r.normal((2, 3))}, {"axis": 1, "exclusive": True}),
        Sample({"X": r.normal((2, 3))}, {"axis": 1, "reverse": True}),
        Sample(
            {"X": _X},
            {"exclusive": True, "reverse": True},
            expected={"Out": np.array([[5.0, 3.0, 0.0], [11.0, 6.0, 0.0]])},
        ),
        Sample({"X": _X}, expected={"Out": np.array([[1.0, 3.0, 6.0], [4.0, 9.0, 15.0]])}),
    ],
    operand_ulps=1,
    capturable=True,
    grad_lod="flow",
    flops=per_element("Out", 1),
)
def cumsum(
    xp: Any, x: Any, *, axis: int = -1, exclusive: bool = False, reverse: bool = False
) -> Any:
    """The sum of all elements so far along ``axis``.

    ``reverse`` sums from the end; ``exclusive`` leaves the element itself out. Source: Paddle op
    ``cumsum``.

    Args:
        axis: the axis along which elements are summed.
        exclusive: leave the element itself out, so that the first result is 0.
        reverse: sum from the end.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.ops.cumsum(x, exclusive=True)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 1., 3.], dtype=float32)]
    """
    source = xp.flip(x, axis) if reverse else x
    out = xp.cumsum(source, axis=axis, dtype=x.dtype)
    if exclusive:  # subtracting the element would lose precision
        places = [slice(None)] * x.ndim
        later, earlier = [*places], [*places]
        later[axis], earlier[axis], places[axis] = slice(1, None), slice(-1), slice(1)
        out[tuple(later)] = out[tuple(earlier)].copy()
        out[tuple(places)] = 0
    return xp.flip(out, axis) if reverse else out


@cumsum.grad_maker
def cumsum_grad(context: GradContext) -> list[GradOp]:
    """The running sum from the other end, as Paddle's program dumps show."""
    given = context.op.plain_attrs()
    attrs = {**given, "reverse": not given["reverse"]}
    inputs = {"X": context.output_grads["Out"]}
    return [GradOp("cumsum", inputs, {"Out": context.input_grads["X"]}, attrs)]
