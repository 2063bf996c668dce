"""``softplus`` and ``soft_relu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._edges import INFINITE, NO_NUMBER, among
from dpexec.engine.ops._unary import LIBRARIES, bends, unary
from dpexec.engine.ops.sigmoid import sigmoid_array


def softplus_array(xp: Any, x: Any) -> Any:
    """``log(1 + exp(x))`` without overflow."""
    return xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x)))


@unary(
    "softplus",
    lambda r: r.normal((3, 4)),
    (np.array([-3.0, 0.0, 50.0]), np.array([0.048587330, 0.69314718, 50.0])),
    attrs=LIBRARIES,
    ulps=4,
    edges=((among(np.inf), "X@GRAD", INFINITE),),
    capturable=True,
    fuses=True,
)
def softplus(xp: Any, x: Any) -> Any:
    """``log(1 + exp(x))`` without overflow. Source: Paddle op ``softplus``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.softplus(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.1269, 0.6931, 1.3133], dtype=float32)
    """
    return softplus_array(xp, x)


@softplus.grad("X", "Out@GRAD", ulps=4)
def softplus_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out * sigmoid(x)``."""
    return d_out * sigmoid_array(xp, x)


@bends(softplus_grad)
def softplus_grad_grad(xp: Any, x: Any) -> Any:
    """``d_out * ddx * s * (1 - s)`` with ``s = sigmoid(x)`` for X and ``ddx * s`` for ``d_out``."""
    s = sigmoid_array(xp, x)
    return s * (1 - s)


@unary(
    "soft_relu",
    lambda r: r.normal((3, 4)),
    (np.array([-3.0, 0.0, 50.0]), np.array([0.048587330, 0.69314718, 40.0])),
    settings=({}, {"threshold": 20.0}),
    ulps=4,
    edges=((among(np.nan), "Out X@GRAD", NO_NUMBER),),
    precision="gray",
)
def soft_relu(xp: Any, x: Any, *, threshold: float = 40.0) -> Any:
    """``log(1 + exp(x))``, with ``x`` cut off at ``threshold`` on both sides.

    Source: Paddle op ``soft_relu``.

    Args:
        threshold: ``x`` is cut off below ``-threshold`` and above ``threshold``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.soft_relu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.1269, 0.6931, 1.3133], dtype=float32)
    """
    return softplus_array(xp, xp.clip(x, -threshold, threshold))


@soft_relu.grad("Out", "Out@GRAD", ulps=4)
def soft_relu_grad(xp: Any, out: Any, d_out: Any, *, threshold: float = 40.0) -> Any:
    """``d_out * (1 - exp(-out))`` where nothing was cut off."""
    return xp.where(out >= threshold, 0, d_out * -xp.expm1(-out))
