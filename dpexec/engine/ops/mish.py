"""``mish``: a smooth activation."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._unary import unary


def _softplus(xp: Any, x: Any, threshold: float) -> Any:
    """``log(1 + exp(x))``, and its limits beyond the threshold, if the threshold is positive."""
    if threshold <= 0:
        return xp.logaddexp(x, x.dtype.type(0))
    inner = xp.clip(x, -threshold, threshold)
    middle = xp.log1p(xp.exp(inner))
    return xp.where(x > threshold, x, xp.where(x < -threshold, xp.exp(xp.minimum(x, 0)), middle))


@unary(
    "mish",
    lambda r: r.normal((3, 4)) * 3,
    (np.array([0.0, 2.0, 25.0]), np.array([0.0, 1.943959, 25.0])),
    settings=({}, {"threshold": 15.0}, {"threshold": 40.0}, {"threshold": 0.0}),
    ulps=4,
    grad_lod=None,
)
def mish(xp: Any, x: Any, *, threshold: float = 20.0) -> Any:
    """``x * tanh(softplus(x))``; ``softplus`` is linear above a positive ``threshold``.

    Source: Paddle op ``mish``; Misra, 2019.

    Args:
        threshold: beyond it, and below its negative, ``softplus`` is replaced by its limits;
            without effect if it is not positive.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.ops.mish(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.2525,  0.    ,  0.8651], dtype=float32)
    """
    return x * xp.tanh(_softplus(xp, x, threshold))


@mish.grad("X", "Out@GRAD", dense=True, ulps=6)
def mish_grad(xp: Any, x: Any, d_out: Any, *, threshold: float = 20.0) -> Any:
    """By the chain rule."""
    softplus = _softplus(xp, x, threshold)
    outer = xp.tanh(softplus)
    small = xp.exp(-2 * softplus)  # 1 - outer**2 would lose precision near 1
    inner = 4 * small / ((1 + small) * (1 + small)) * -xp.expm1(-softplus)
    return d_out * (outer + x * inner)
