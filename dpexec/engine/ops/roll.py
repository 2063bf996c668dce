"""``roll``: elements moved along axes, those at the end to the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_axis


def _infer(x: Spec, *, shifts: Sequence[int] = (), dims: Sequence[int] = ()) -> Spec:
    require(
        len(shifts) == len(dims),
        f"shifts {list(shifts)} and dims {list(dims)} must have equal lengths",
    )
    for axis in dims:
        require_axis(axis, x, attribute="dims")
    return x


@op(
    "roll",
    inputs="X",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4))}, {"shifts": [1], "dims": [0]}),
        Sample({"X": r.normal((3, 4))}, {"shifts": [-1, 2], "dims": [0, 1]}),
        Sample({"X": r.normal((2, 3, 2))}, {"shifts": [7], "dims": [-2]}),
        Sample(
            {"X": np.array([1, 2, 3])},
            {"shifts": [1], "dims": [0]},
            expected={"Out": np.array([3, 1, 2])},
        ),
    ],
    flops=0,
)
def roll(xp: Any, x: Any, *, shifts: Sequence[int] = (), dims: Sequence[int] = ()) -> Any:
    """``x`` rotated by ``shifts`` along ``dims``: elements move from the end to the start.

    Source: Paddle op ``roll``.

    Args:
        shifts: for each of ``dims``, the number of places by which elements move to the end.
        dims: the axes.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     out = fluid.layers.ops.roll(x, shifts=[1], dims=[0])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3., 1., 2.], dtype=float32)]
    """
    return xp.roll(x, tuple(shifts), axis=tuple(dims))


@roll.grad("X", "Out@GRAD", dense=True)
def roll_grad(
    xp: Any, x: Any, d_out: Any, *, shifts: Sequence[int] = (), dims: Sequence[int] = ()
) -> Any:
    """The gradient moved back."""
    return xp.roll(d_out, tuple(-shift for shift in shifts), axis=tuple(dims))
