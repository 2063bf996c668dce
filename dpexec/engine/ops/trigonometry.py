"""``sin``, ``cos``, ``asin``, ``acos`` and ``atan``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._unary import LIBRARIES, bends, unary


@unary(
    "sin",
    lambda r: r.normal((3, 4)),
    (np.array([0.0, np.pi / 6]), np.array([0.0, 0.5])),
    attrs=LIBRARIES,
)
def sin(xp: Any, x: Any) -> Any:
    """The sine of an angle in radians. Source: Paddle op ``sin``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.sin(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.9093,  0.    ,  0.8415], dtype=float32)
    """
    return xp.sin(x)


@sin.grad("X", "Out@GRAD")
def sin_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out * cos(x)``."""
    return d_out * xp.cos(x)


@bends(sin_grad)
def sin_grad_grad(xp: Any, x: Any) -> Any:
    """``-d_out * ddx * sin(x)`` for X and ``ddx * cos(x)`` for ``d_out``."""
    return -xp.sin(x)


@unary(
    "cos",
    lambda r: r.normal((3, 4)),
    (np.array([0.0, np.pi / 3]), np.array([1.0, 0.5])),
    attrs=LIBRARIES,
)
def cos(xp: Any, x: Any) -> Any:
    """The cosine of an angle in radians. Source: Paddle op ``cos``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.cos(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.4161,  1.    ,  0.5403], dtype=float32)
    """
    return xp.cos(x)


@cos.grad("X", "Out@GRAD")
def cos_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``-d_out * sin(x)``."""
    return -d_out * xp.sin(x)


@bends(cos_grad)
def cos_grad_grad(xp: Any, x: Any) -> Any:
    """``-d_out * ddx * cos(x)`` for X and ``-ddx * sin(x)`` for ``d_out``."""
    return -xp.cos(x)


@unary(
    "asin",
    lambda r: r.uniform(-0.9, 0.9, (3, 4)),
    (np.array([0.0, 0.5, 1.0]), np.array([0.0, np.pi / 6, np.pi / 2])),
)
def asin(xp: Any, x: Any) -> Any:
    """The angle in [-pi/2, pi/2] whose sine is ``x``. Source: Paddle op ``asin``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-0.5, 0.0, 0.5], "float32"))
        ...     out = fluid.layers.asin(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-0.5236,  0.    ,  0.5236], dtype=float32)
    """
    return xp.arcsin(x)


@asin.grad("X", "Out@GRAD")
def asin_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / sqrt(1 - x**2)``."""
    return d_out / xp.sqrt(1 - x * x)


@unary(
    "acos",
    lambda r: r.uniform(-0.9, 0.9, (3, 4)),
    (np.array([0.0, 0.5, 1.0]), np.array([np.pi / 2, np.pi / 3, 0.0])),
)
def acos(xp: Any, x: Any) -> Any:
    """The angle in [0, pi] whose cosine is ``x``. Source: Paddle op ``acos``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-0.5, 0.0, 0.5], "float32"))
        ...     out = fluid.layers.acos(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([2.0944, 1.5708, 1.0472], dtype=float32)
    """
    return xp.arccos(x)


@acos.grad("X", "Out@GRAD")
def acos_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``-d_out / sqrt(1 - x**2)``."""
    return -d_out / xp.sqrt(1 - x * x)


@unary(
    "atan",
    lambda r: r.normal((3, 4)),
    (np.array([0.0, 1.0]), np.array([0.0, np.pi / 4])),
)
def atan(xp: Any, x: Any) -> Any:
    """The angle in (-pi/2, pi/2) whose tangent is ``x``. Source: Paddle op ``atan``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.atan(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([-1.1071,  0.    ,  0.7854], dtype=float32)
    """
    return xp.arctan(x)


@atan.grad("X", "Out@GRAD")
def atan_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """``d_out / (1 + x**2)``."""
    return d_out / (1 + x * x)
