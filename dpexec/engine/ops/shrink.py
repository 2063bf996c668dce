"""``softshrink`` and ``hard_shrink``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._edges import INFINITE, among
from dpexec.engine.ops._unary import bends_nowhere, unary


@unary(
    "softshrink",
    lambda r: r.distinct((3, 4)) - 0.55,
    (np.array([-3.0, 0.3, 1.0]), np.array([-2.5, 0.0, 0.5])),
    settings=({}, {"lambda": 0.2}),
    ulps=1,
    edges=((among(np.inf), "Out", INFINITE),),
)
def softshrink(xp: Any, x: Any, *, lambda_: float = 0.5) -> Any:
    """``x`` moved towards 0 by ``lambda``, and not beyond 0. Source: Paddle op ``softshrink``."""
    return x - xp.clip(x, -lambda_, lambda_)


@softshrink.grad("X", "Out@GRAD", ulps=0)
def softshrink_grad(xp: Any, x: Any, d_out: Any, *, lambda_: float = 0.5) -> Any:
    """The gradient passes where ``x`` is further from 0 than ``lambda``."""
    return xp.where(xp.abs(x) > lambda_, d_out, 0)


bends_nowhere(softshrink_grad)


@unary(
    "hard_shrink",
    lambda r: r.distinct((3, 4)) - 0.55,
    (np.array([-3.0, 0.5, 1.0]), np.array([-3.0, 0.0, 1.0])),
    settings=({}, {"threshold": 0.2}),
    ulps=0,
    fuses=True,
)
def hard_shrink(xp: Any, x: Any, *, threshold: float = 0.5) -> Any:
    """``x`` where it is further from 0 than ``threshold``, else 0.

    Source: Paddle op ``hard_shrink``.

    Args:
        threshold: numbers from ``-threshold`` to ``threshold`` become 0.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([-2.0, 0.0, 1.0], "float32"))
        ...     out = fluid.layers.hard_shrink(x)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([-2.,  0.,  1.], dtype=float32)]
    """
    return xp.where(xp.abs(x) <= threshold, 0, x)


@hard_shrink.grad("X", "Out@GRAD", ulps=0)
def hard_shrink_grad(xp: Any, x: Any, d_out: Any, *, threshold: float = 0.5) -> Any:
    """The gradient passes where ``x`` is further from 0 than ``threshold``."""
    return xp.where(xp.abs(x) > threshold, d_out, 0)


bends_nowhere(hard_shrink_grad)
