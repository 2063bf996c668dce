"""``sigmoid``, ``logsigmoid``, ``hard_sigmoid``, ``swish`` and ``hard_swish``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._edges import INFINITE, NO_NUMBER, among
from dpexec.engine.ops._unary import LIBRARIES, bends, bends_nowhere, unary

_NO_SLOPE = "gives 0 in the gradient of large numbers; dpexec gives the slope"


def sigmoid_array(xp: Any, x: Any) -> Any:
    """``1 / (1 + exp(-x))`` in one fresh array."""
    out = xp.negative(x)
    xp.exp(out, out=out)
    out += 1
    return xp.divide(1, out, out=out)


@unary(
    "sigmoid",
    lambda r: r.normal((3, 4)),
    (np.array([-7.0, 0.0, 3.0]), np.array([9.1105117e-04, 0.5, 0.95257413])),
    attrs=LIBRARIES,
    ulps=3,
    edges=((among(np.nan), "Out X@GRAD", NO_NUMBER),),
    capturable=True,
    precision="gray",
    fuses=True,
    quantized="outputs",
)
def sigmoid(xp: Any, x: Any) -> Any:
    """``1 / (1 + exp(-x))``. Source: Paddle op ``sigmoid``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.sigmoid(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.1192, 0.5   , 0.7311], dtype=float32)
    """
    return sigmoid_array(xp, x)


@sigmoid.grad("Out", "Out@GRAD", ulps=3)
def sigmoid_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """``d_out * out * (1 - out)``."""
    grad = 1 - out
    grad *= out
    grad *= d_out
    return grad


@bends(sigmoid_grad, "Out")
def sigmoid_grad_grad(xp: Any, out: Any) -> Any:
    """``d_out * ddx * (1 - 2 * out)`` for Out and ``ddx * out * (1 - out)`` for ``d_out``."""
    return 1 - 2 * out


@unary(
    "logsigmoid",
    lambda r: r.normal((3, 4)),
    (np.array([-50.0, 0.0, 3.0]), np.array([-50.0, -0.69314718, -0.048587330])),
    attrs=LIBRARIES,
    ulps=4,
    edges=((among(-np.inf), "X@GRAD", INFINITE),),
    capturable=True,
    fuses=True,
)
def logsigmoid(xp: Any, x: Any) -> Any:
    """``log(1 / (1 + exp(-x)))`` without overflow. Source: Paddle op ``logsigmoid``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.logsigmoid(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-2.1269, -0.6931, -0.3133], dtype=float32)
    """
    return xp.minimum(x, 0) - xp.log1p(xp.exp(-xp.abs(x)))


@logsigmoid.grad("X", "Out@GRAD", ulps=4)
def logsigmoid_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / (1 + exp(x))``."""
    return d_out * sigmoid_array(xp, -x)


@bends(logsigmoid_grad)
def logsigmoid_grad_grad(xp: Any, x: Any) -> Any:
    """``-d_out * ddx * s * (1 - s)`` with ``s = sigmoid(x)`` for X; for ``d_out`` as for X."""
    s = sigmoid_array(xp, x)
    return s * (s - 1)


@unary(
    "hard_sigmoid",
    lambda r: r.distinct((3, 4)) - 0.55,
    (np.array([-3.0, -1.5, 0.3, 7.0]), np.array([0.0, 0.2, 0.56, 1.0])),
    settings=({}, {"slope": 3.0, "offset": 0.4}),
    ulps=1,
    capturable=True,
    fuses=True,
)
def hard_sigmoid(xp: Any, x: Any, *, slope: float = 0.2, offset: float = 0.5) -> Any:
    """``slope * x + offset``, cut off below 0 and above 1. Source: Paddle op ``hard_sigmoid``.

    Args:
        slope: the slope between the cuts.
        offset: the result for 0.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.hard_sigmoid(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.1, 0.5, 0.7], dtype=float32)
    """
    return xp.clip(x * slope + offset, 0, 1)


@hard_sigmoid.grad("Out", "Out@GRAD", ulps=1)
def hard_sigmoid_grad(xp: Any, out: Any, d_out: Any, *, slope: float = 0.2) -> Any:
    """``slope`` where nothing was cut off."""
    return xp.where((out > 0) & (out < 1), d_out * slope, 0)


bends_nowhere(hard_sigmoid_grad)


@unary(
    "swish",
    lambda r: r.normal((3, 4)),
    (np.array([-3.0, 0.0, 1.5]), np.array([-0.14227761, 0.0, 1.2263616])),
    settings=({}, {"beta": 2.0}),
    attrs={"use_mkldnn": False},
    ulps=4,
    edges=((among(1e20), "X@GRAD", _NO_SLOPE),),
    capturable=True,
    fuses=True,
    quantized="inputs outputs",
)
def swish(xp: Any, x: Any, *, beta: float = 1.0) -> Any:
    """``x * sigmoid(beta * x)``. Source: Paddle op ``swish``.

    Args:
        beta: how steep the sigmoid is.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.ops.swish(x, beta=2.0)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.036 ,  0.    ,  0.8808], dtype=float32)
    """
    out = sigmoid_array(xp, x * beta)
    out *= x
    return out


@swish.grad("X", "Out@GRAD", ulps=6)
def swish_grad(xp: Any, x: Any, d_out: Any, *, beta: float = 1.0) -> Any:
    """``d_out * (s + beta * x * s * (1 - s))`` with ``s = sigmoid(beta * x)``."""
    s = sigmoid_array(xp, x * beta)
    return d_out * s * (1 + beta * x * sigmoid_array(xp, x * -beta))


@bends(swish_grad)
def swish_grad_grad(xp: Any, x: Any, *, beta: float = 1.0) -> Any:
    """``d_out * ddx * b * s * (1 - s) * (2 + b * x * (1 - 2 * s))`` with ``s = sigmoid(b * x)``."""
    s = sigmoid_array(xp, x * beta)
    return beta * s * (1 - s) * (2 + beta * x * (1 - 2 * s))


@unary(
    "hard_swish",
    lambda r: r.distinct((3, 4)) * 10 - 5.55,
    (np.array([-7.0, -2.5, 1.0, 3.0]), np.array([0.0, -0.20833333, 2 / 3, 3.0])),
    settings=({}, {"threshold": 4.0, "scale": 5.0, "offset": 2.0}),
    deviates={
        "X@GRAD": (
            "gives 1 above the threshold, where the slope is threshold / scale; "
            "dpexec gives the slope"
        )
    },
    ulps=3,
    edges=((among(np.inf), "X@GRAD", INFINITE),),
    capturable=True,
    fuses=True,
)
def hard_swish(
    xp: Any, x: Any, *, threshold: float = 6.0, scale: float = 6.0, offset: float = 3.0
) -> Any:
    """``x * min(max(x + offset, 0), threshold) / scale``. Source: Paddle op ``hard_swish``.

    Args:
        threshold: the upper limit of ``x + offset``.
        scale: the divisor.
        offset: results are 0 where ``x`` is below ``-offset``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.hard_swish(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.3333,  0.    ,  0.6667], dtype=float32)
    """
    return x * (xp.clip(x + offset, 0, threshold) / scale)


@hard_swish.grad("X", "Out@GRAD", ulps=3)
def hard_swish_grad(
    xp: Any,
    x: Any,
    d_out: Any,
    *,
    threshold: float = 6.0,
    scale: float = 6.0,
    offset: float = 3.0,
) -> Any:
    """``(2 * x + offset) / scale`` where nothing was cut off, then 0 or ``threshold / scale``."""
    shifted = x + offset
    rising = xp.where(shifted > 0, shifted + x, 0)
    slope = xp.where(shifted < threshold, rising, threshold)
    return d_out * slope / scale
