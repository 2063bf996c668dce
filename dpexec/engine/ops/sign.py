"""``abs`` and ``sign``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import GradContext, GradOp
from dpexec.engine.ops._edges import NO_NUMBER, among
from dpexec.engine.ops._unary import LIBRARIES, bends_nowhere, unary


@unary(
    "abs",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-3, 0, 2]), np.array([3, 0, 2])),
    attrs=LIBRARIES,
    integers=True,
    sparse=True,
    ulps=0,
    edges=((among(np.nan), "X@GRAD", NO_NUMBER),),
    capturable=True,
    fuses=True,
)
def abs(xp: Any, x: Any) -> Any:
    """The absolute value. Source: Paddle op ``abs``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.abs(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([2., 0., 1.], dtype=float32)]
    """
    return xp.abs(x)


@abs.grad("X", "Out@GRAD", ulps=0)
def abs_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """The gradient times the sign of ``x``, 0 at 0."""
    return d_out * xp.sign(x)


bends_nowhere(abs_grad)


@unary(
    "sign",
    lambda r: r.away_from(0.0, (3, 4)),
    (np.array([-3.0, 0.0, 2.0]), np.array([-1.0, 0.0, 1.0])),
    edges=((among(np.nan), "Out", NO_NUMBER),),
    capturable=True,
    precision="gray",
    grad_lod=None,
)
def sign(xp: Any, x: Any) -> Any:
    """-1, 0 or 1. Source: Paddle op ``sign``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 5.0], "float32"))
        ...     out = fluid.layers.ops.sign(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-1.,  0.,  1.], dtype=float32)]
    """
    return xp.sign(x)


@sign.grad_maker
def sign_grad(context: GradContext) -> list[GradOp]:
    """Zero: a ``scale`` by 0, as Paddle's program dumps show."""
    inputs = {"X": context.output_grads["Out"]}
    return [GradOp("scale", inputs, {"Out": context.input_grads["X"]}, {"scale": 0.0})]
