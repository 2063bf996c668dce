"""``mean``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, op
from dpexec.engine.ops._shapes import infer_number


@op(
    "mean",
    inputs="X",
    infer=infer_number,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}),
        Sample({"X": r.normal((2, 1, 3))}),
        Sample({"X": np.array([1.0, 2.0, 6.0])}, expected={"Out": np.array([3.0])}),
    ],
    operand_ulps=2,
    capturable=True,
    grad_lod="own",
    precision="black",
    quantized="inputs",
    flops=per_element("X", 1),
)
def mean(xp: Any, x: Any) -> Any:
    """The mean of all elements, of shape (1,); nan if there is none. Source: Paddle op ``mean``."""
    return x.mean().reshape(1) if x.size else xp.full(1, np.nan, x.dtype)


@mean.grad("X", "Out@GRAD", operand_ulps=1)
def mean_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """The same share for every element; a read-only view of one number."""
    return xp.broadcast_to((d_out / x.dtype.type(x.size)).reshape((1,) * x.ndim), x.shape)


mean_grad.grad_is(mean)
