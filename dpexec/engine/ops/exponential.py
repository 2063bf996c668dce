"""``exp``, ``log`` and ``log1p``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._edges import NO_NUMBER, NUMBERS, SMALL, among
from dpexec.engine.ops._unary import LIBRARIES, bends, unary


@unary(
    "exp",
    lambda r: r.normal((3, 4)),
    (np.array([2, 0, -3]), np.array([7, 1, 0])),
    attrs=LIBRARIES,
    integers=True,
    ulps=3,
    edges=((among(np.nan), "Out X@GRAD", NO_NUMBER),),
    capturable=True,
    precision="black",
    fuses=True,
)
def exp(xp: Any, x: Any) -> Any:
    """``e ** x``, for integers rounded towards 0. Source: Paddle op ``exp``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.exp(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.1353, 1.    , 2.7183], dtype=float32)
    """
    return xp.exp(x).astype(x.dtype, copy=False)


@exp.grad("Out", "Out@GRAD", ulps=1)
def exp_grad(xp: Any, out: Any, d_out: Any) -> Any:
    """The function is its own derivative."""
    return d_out * out


@exp_grad.double_grad(
    "Out", "DOut", "DDX", outputs="Out@GRAD DDOut", infer=lambda out, d_out, ddx: (out, d_out)
)
def exp_grad_grad(xp: Any, out: Any, d_out: Any, ddx: Any) -> tuple[Any, Any]:
    """``d_out * ddx`` for Out and ``ddx * out`` for ``d_out``."""
    return d_out * ddx, exp_grad(xp, out, ddx)


@unary(
    "log",
    lambda r: r.uniform(0.5, 2.0, (3, 4)),
    (np.array([1.0, 0.25, np.inf]), np.array([0.0, -1.3862944, np.inf])),
    attrs=LIBRARIES,
    ulps=3,
    capturable=True,
    precision="black",
    fuses=True,
)
def log(xp: Any, x: Any) -> Any:
    """The natural logarithm. Source: Paddle op ``log``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 4.0], "float32"))
        ...     out = fluid.layers.log(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.    , 1.3863], dtype=float32)
    """
    return xp.log(x)


@log.grad("X", "Out@GRAD", ulps=1)
def log_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / x``."""
    return d_out / x


@log_grad.double_grad(
    "X", "DOut", "DDX", outputs="X@GRAD DDOut", infer=lambda x, d_out, ddx: (x, d_out)
)
def log_grad_grad(xp: Any, x: Any, d_out: Any, ddx: Any) -> tuple[Any, Any]:
    """``-d_out * ddx / x**2`` for X and ``ddx / x`` for ``d_out``."""
    return -d_out * ddx / (x * x), log_grad(xp, x, ddx)


@unary(
    "log1p",
    lambda r: r.uniform(-0.5, 2.0, (3, 4)),
    (np.array([0.0, 1e-6, 9.0]), np.array([0.0, 9.999995e-7, 2.3025851])),
    attrs=LIBRARIES,
    edges=((NUMBERS * 1e-5, "Out", SMALL),),
    ulps=3,
)
def log1p(xp: Any, x: Any) -> Any:
    """The natural logarithm of ``1 + x``, exact for small ``x``. Source: Paddle op ``log1p``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([0.0, 1.0], "float32"))
        ...     out = fluid.layers.ops.log1p(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([0.    , 0.6931], dtype=float32)
    """
    return xp.log1p(x)


@log1p.grad("X", "Out@GRAD", operand_ulps=2, ulps=3)
def log1p_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / (1 + x)``."""
    return d_out / (1 + x)


@bends(log1p_grad)
def log1p_grad_grad(xp: Any, x: Any) -> Any:
    """``-d_out * ddx / (1 + x)**2`` for X and ``ddx / (1 + x)`` for ``d_out``."""
    return -1 / (1 + x) ** 2
