"""``elementwise_pow``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng
from dpexec.engine.ops._elementwise import aligned, elementwise, samples, unbroadcast


def _samples(r: SampleRng) -> list[Sample]:
    found = samples(lambda r, shape: r.uniform(0.5, 2.0, shape), lambda r, s: r.normal(s))(r)
    swapped = {
        "Out": (
            "gives Y to the power of X if X has fewer dimensions than Y; dpexec gives X to the "
            "power of Y"
        )
    }
    return [
        *(
            replace(call, deviates=swapped if call.inputs["X"].ndim < call.inputs["Y"].ndim else {})
            for call in found
        ),
        Sample(
            {"X": np.array([2.0, 3.0, -2.0, 0.0]), "Y": np.array([3.0, -1.0, 3.0, 0.0])},
            smooth=False,
            deviates=dict.fromkeys(
                ("X@GRAD", "Y@GRAD"),
                "gives infinity or NaN where X and Y are 0; dpexec gives finite numbers",
            ),
            expected={"Out": np.array([8.0, 1 / 3, -8.0, 1.0])},
        ),
        Sample(
            {"X": np.array([2, 3, -2, 0]), "Y": np.array([3, -1, 3, 0])},
            expected={"Out": np.array([8, 0, -8, 1])},
        ),
    ]


@elementwise(
    "elementwise_pow",
    samples=_samples,
    capturable=True,
    grad_lod="flow",
    flops=per_element("Out", 1),
)
def elementwise_pow(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x ** y``, the smaller shape laid into the larger one from ``axis`` on.

    Integers are raised as floating point numbers and truncated. Source: Paddle op
    ``elementwise_pow``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_pow(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[ 1.,  8.],
               [ 9., 64.]], dtype=float32)]
    """
    x, y = aligned(x, y, axis)
    if np.issubdtype(x.dtype, np.integer):
        return xp.power(x.astype(np.float64), y).astype(x.dtype)
    return xp.power(x, y)


@elementwise_pow.grad("X", "Y", "Out@GRAD")
def elementwise_pow_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """``d_out * y * x**(y-1)`` for X and ``d_out * x**y * log(x)`` for Y.

    The first is 0 where the exponent is 0, the second where the base is 0. These are the limits;
    the formulas would give nan.
    """
    base, exponent = aligned(x, y, axis)
    d_x = d_y = None
    if needs[0]:
        slope = xp.where(exponent == 0, 0, exponent * xp.power(base, exponent - 1))
        d_x = unbroadcast(xp, d_out * slope, x, y, axis)
    if needs[1]:
        slope = xp.where(base == 0, 0, xp.power(base, exponent) * xp.log(base))
        d_y = unbroadcast(xp, d_out * slope, y, x, axis)
    return d_x, d_y
