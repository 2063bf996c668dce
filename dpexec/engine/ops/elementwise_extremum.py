"""``elementwise_max`` and ``elementwise_min``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng
from dpexec.engine.ops._edges import EXTREMA, NUMBERS, among, edge
from dpexec.engine.ops._elementwise import aligned, fusing, unbroadcast


def _samples(r: SampleRng) -> list[Sample]:
    """X and Y differ everywhere: the derivative jumps where they are equal."""
    x, y, row = r.distinct((2, 3, 4)), r.distinct((2, 3, 4)) + 0.05, r.distinct((3,)) + 0.05
    return [
        Sample({"X": x, "Y": y}),
        Sample({"X": x, "Y": row}, {"axis": 1}),
        Sample({"X": row, "Y": x[:, :, 0]}),
        Sample({"X": np.array([1.0, 2.0, 3.0]), "Y": np.array([1.0, 3.0, 2.0])}, smooth=False),
        edge({"X": among(np.nan), "Y": NUMBERS + 0.1}, "Out Y@GRAD", EXTREMA),
    ]


@fusing("elementwise_max", ulps=0, samples=_samples)
def elementwise_max(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """The larger of ``x`` and ``y``, the smaller shape laid into the larger one from ``axis`` on.

    Source: Paddle op ``elementwise_max``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_max(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[2., 3.],
               [3., 4.]], dtype=float32)]
    """
    return xp.maximum(*aligned(x, y, axis))


@elementwise_max.grad("X", "Y", "Out@GRAD")
def elementwise_max_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient goes to the larger input, to Y where both are equal."""
    x_laid, y_laid = aligned(x, y, axis)
    return _share(xp, x, y, d_out, x_laid > y_laid, axis, needs)


@fusing("elementwise_min", ulps=0, samples=_samples)
def elementwise_min(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """The smaller of ``x`` and ``y``, the smaller shape laid into the larger one from ``axis`` on.

    Source: Paddle op ``elementwise_min``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[1.0, 2.0], [3.0, 4.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 3.0], "float32"))
        ...     out = fluid.layers.elementwise_min(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[1., 2.],
               [2., 3.]], dtype=float32)]
    """
    return xp.minimum(*aligned(x, y, axis))


@elementwise_min.grad("X", "Y", "Out@GRAD")
def elementwise_min_grad(
    xp: Any, x: Any, y: Any, d_out: Any, *, axis: int = -1, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The gradient goes to the smaller input, to Y where both are equal."""
    x_laid, y_laid = aligned(x, y, axis)
    return _share(xp, x, y, d_out, x_laid < y_laid, axis, needs)


def _share(
    xp: Any, x: Any, y: Any, d_out: Any, x_wins: Any, axis: int, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    return (
        unbroadcast(xp, d_out * x_wins, x, y, axis) if needs[0] else None,
        unbroadcast(xp, d_out * ~x_wins, y, x, axis) if needs[1] else None,
    )
