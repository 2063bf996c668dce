"""``leaky_relu``, ``relu6``, ``brelu``, ``elu``, ``selu``, ``thresholded_relu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import same_as
from dpexec.engine.ops._edges import INFINITE, NO_NUMBER, NUMBERS, SMALL, among
from dpexec.engine.ops._unary import bends_nowhere, unary


@unary(
    "leaky_relu",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-50.0, 0.0, 2.0]), np.array([-1.0, 0.0, 2.0])),
    settings=({}, {"alpha": 0.3}, {"alpha": 2.0}),
    deviates={
        "Out": (
            "gives the larger one of X and alpha * X, also for alpha above 1; dpexec multiplies "
            "negative elements by alpha"
        )
    },
    attrs={"use_mkldnn": False},
    ulps=1,
    capturable=True,
    precision="gray",
    fuses=True,
    quantized="inputs outputs",
)
def leaky_relu(xp: Any, x: Any, *, alpha: float = 0.02) -> Any:
    """``x`` where it is positive, else ``alpha * x``. Source: Paddle op ``leaky_relu``.

    Args:
        alpha: the slope below 0.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.leaky_relu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-0.04,  0.  ,  1.  ], dtype=float32)]
    """
    return xp.where(x > 0, x, x * alpha)


@leaky_relu.grad("Out", "Out@GRAD", ulps=1)
def leaky_relu_grad(xp: Any, out: Any, d_out: Any, *, alpha: float = 0.02) -> Any:
    """The gradient, times ``alpha`` where the output is not positive."""
    return xp.where(out > 0, d_out, d_out * alpha)


@leaky_relu_grad.double_grad("Out", "DDX", outputs="DDOut", infer=same_as("Out"))
def leaky_relu_grad_grad(xp: Any, out: Any, ddx: Any, *, alpha: float = 0.02) -> Any:
    """Like the gradient: ``ddx``, times ``alpha`` where the output is not positive."""
    return xp.where(out > 0, ddx, ddx * alpha)


@unary(
    "relu6",
    lambda r: r.distinct((3, 4)) * 10 - 2.05,
    (np.array([-1.0, 2.5, 50.0]), np.array([0.0, 2.5, 6.0])),
    settings=({}, {"threshold": 3.0}),
    ulps=0,
    capturable=True,
    precision="gray",
    fuses=True,
    quantized="inputs outputs",
)
def relu6(xp: Any, x: Any, *, threshold: float = 6.0) -> Any:
    """``x`` cut off below 0 and above ``threshold``. Source: Paddle op ``relu6``.

    Args:
        threshold: the largest result.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.relu6(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 0., 1.], dtype=float32)]
    """
    return xp.clip(x, 0, threshold)


@relu6.grad("Out", "Out@GRAD", ulps=0)
def relu6_grad(xp: Any, out: Any, d_out: Any, *, threshold: float = 6.0) -> Any:
    """The gradient passes where nothing was cut off."""
    return xp.where((out > 0) & (out < threshold), d_out, 0)


bends_nowhere(relu6_grad)


@unary(
    "brelu",
    lambda r: r.distinct((3, 4)) - 0.55,
    (np.array([-1.0, 2.5, 50.0]), np.array([0.0, 2.5, 24.0])),
    settings=({}, {"t_min": -0.3, "t_max": 0.4}),
    ulps=0,
    fuses=True,
)
def brelu(xp: Any, x: Any, *, t_min: float = 0.0, t_max: float = 24.0) -> Any:
    """``x`` cut off below ``t_min`` and above ``t_max``. Source: Paddle op ``brelu``.

    Args:
        t_min: the smallest result.
        t_max: the largest result.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.brelu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 0., 1.], dtype=float32)]
    """
    return xp.clip(x, t_min, t_max)


@brelu.grad("X", "Out@GRAD", ulps=0)
def brelu_grad(xp: Any, x: Any, d_out: Any, *, t_min: float = 0.0, t_max: float = 24.0) -> Any:
    """The gradient passes where nothing was cut off."""
    return xp.where((x > t_min) & (x < t_max), d_out, 0)


bends_nowhere(brelu_grad)


@unary(
    "elu",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-3.0, 0.0, 1.5]), np.array([-0.95021293, 0.0, 1.5])),
    settings=({}, {"alpha": 0.4}),
    ulps=3,
    edges=(
        (NUMBERS * 1e-5, "Out", SMALL),
        (among(1e3), "X@GRAD", INFINITE),
    ),
    fuses=True,
)
def elu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``. Source: Paddle op ``elu``.

    Args:
        alpha: results stay above ``-alpha``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.elu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.8647,  0.    ,  1.    ], dtype=float32)
    """
    return xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


@elu.grad("X", "Out@GRAD", ulps=3)
def elu_grad(xp: Any, x: Any, d_out: Any, *, alpha: float = 1.0) -> Any:
    """The gradient, times ``alpha * exp(x)`` where ``x`` is not positive."""
    return d_out * xp.where(x > 0, 1, alpha * xp.exp(xp.minimum(x, 0)))


@elu_grad.double_grad(
    "X", "DOut", "DDX", outputs="DX DDOut", infer=lambda x, d_out, ddx: (x, d_out)
)
def elu_grad_grad(xp: Any, x: Any, d_out: Any, ddx: Any, *, alpha: float = 1.0) -> tuple[Any, Any]:
    """``ddx * d_out * alpha * exp(x)`` for X where it is negative, the gradient for ``d_out``."""
    slope = alpha * xp.exp(xp.minimum(x, 0))
    return ddx * d_out * xp.where(x > 0, 0, slope), ddx * xp.where(x > 0, 1, slope)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@unary(
    "selu",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-3.0, 0.0, 1.5]), np.array([-1.6705687, 0.0, 1.5760515])),
    settings=({}, {"alpha": 1.5, "scale": 1.2}),
    ulps=4,
    edges=(
        (NUMBERS * 1e-5, "Out", SMALL),
        (among(np.nan), "X@GRAD", NO_NUMBER),
    ),
    fuses=True,
    grad_lod=None,
)
def selu(xp: Any, x: Any, *, alpha: float = _SELU_ALPHA, scale: float = _SELU_SCALE) -> Any:
    """``scale * elu(x)`` with constants that keep activations normalised.

    Source: Klambauer et al., 2017; Paddle op ``selu``.

    Args:
        alpha: results stay above ``-scale * alpha``.
        scale: the slope above 0.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.ops.selu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-1.5202,  0.    ,  1.0507], dtype=float32)
    """
    return scale * xp.where(x > 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


@selu.grad("Out", "Out@GRAD", dense=True, ulps=3)
def selu_grad(
    xp: Any, out: Any, d_out: Any, *, alpha: float = _SELU_ALPHA, scale: float = _SELU_SCALE
) -> Any:
    """``scale`` where the output is positive, else ``out + scale * alpha``."""
    return d_out * xp.where(out > 0, scale, out + scale * alpha)


@unary(
    "thresholded_relu",
    lambda r: r.away_from(1.0, (3, 4)),
    (np.array([-3.0, 1.0, 1.5]), np.array([0.0, 0.0, 1.5])),
    settings=({}, {"threshold": 0.95}),
    ulps=0,
    edges=((among(-np.inf), "Out", INFINITE),),
    fuses=True,
)
def thresholded_relu(xp: Any, x: Any, *, threshold: float = 1.0) -> Any:
    """``x`` where it is above ``threshold``, else 0. Source: Paddle op ``thresholded_relu``.

    Args:
        threshold: smaller numbers become 0, and so does the threshold itself.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([0.5, 1.0, 2.0], "float32"))
        ...     out = fluid.layers.thresholded_relu(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([0., 0., 2.], dtype=float32)]
    """
    return xp.where(x <= threshold, 0, x)


@thresholded_relu.grad("X", "Out@GRAD", ulps=0)
def thresholded_relu_grad(xp: Any, x: Any, d_out: Any, *, threshold: float = 1.0) -> Any:
    """The gradient passes where ``x`` is above ``threshold``."""
    return xp.where(x > threshold, d_out, 0)


bends_nowhere(thresholded_relu_grad)
