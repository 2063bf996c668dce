"""``elementwise_mod`` and ``elementwise_floordiv``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec
from dpexec.engine.ops._elementwise import aligned, elementwise, infer_elementwise
from dpexec.engine.ops._integers import truncated_quotient, truncated_remainder
from dpexec.engine.ops._shapes import require_integer

_DIVIDENDS = np.array([7, -7, 7, -7, 6])
_DIVISORS = np.array([3, 3, -3, -3, 3])


def _swapped(r: SampleRng) -> Sample:
    """A small X with a large Y."""
    return Sample(
        {"X": r.integers(5, 9, (3,)), "Y": r.integers(1, 4, (2, 3))},
        deviates={
            "Out": "divides Y by X if X has fewer dimensions than Y; dpexec divides X by Y",
        },
    )


def _mod_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"X": _DIVIDENDS, "Y": _DIVISORS}, expected={"Out": np.array([1, -1, 1, -1, 0])}),
        Sample(
            {"X": _DIVIDENDS.astype(float), "Y": _DIVISORS.astype(float)},
            expected={"Out": np.array([1.0, 2.0, -2.0, -1.0, 0.0])},
        ),
        Sample({"X": r.integers(0, 9, (2, 3, 2)), "Y": r.integers(1, 4, (3,))}, {"axis": 1}),
        _swapped(r),
    ]


@elementwise(
    "elementwise_mod",
    no_grad=True,
    checks_values=True,
    samples=_mod_samples,
    makes_numbers=True,
)
def elementwise_mod(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """The remainder of ``x / y``, the smaller shape laid into the larger one from ``axis`` on.

    As in the real Paddle it has the sign of ``x`` for integers and the sign of ``y`` for floating
    point numbers. Source: Paddle op ``elementwise_mod``.

    Raises:
        ValueError: an integer is divided by zero.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([7, 8], "int32"))
        ...     y = fluid.layers.assign(np.array([2, 3], "int32"))
        ...     out = fluid.layers.elementwise_mod(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([1, 2], dtype=int32)]
    """
    x, y = aligned(x, y, axis)
    if np.issubdtype(x.dtype, np.integer):
        return truncated_remainder(xp, x, y)
    return xp.remainder(x, y)


def _infer_floordiv(x: Spec, y: Spec, *, axis: int = -1) -> Spec:
    require_integer(x, "X")
    return infer_elementwise(x, y, axis=axis)


@elementwise(
    "elementwise_floordiv",
    infer=_infer_floordiv,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": _DIVIDENDS, "Y": _DIVISORS}, expected={"Out": np.array([2, -2, -2, 2, 2])}),
        Sample({"X": r.integers(-9, 9, (4, 2)), "Y": r.integers(1, 4, (4, 2))}),
        Sample({"X": r.integers(0, 9, (2, 3, 2)), "Y": r.integers(1, 4, (3,))}, {"axis": 1}),
        _swapped(r),
    ],
    makes_numbers=True,
)
def elementwise_floordiv(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """``x / y`` of integers, rounded towards zero as in Paddle, although its name says floor.

    Source: Paddle op ``elementwise_floordiv``.

    Raises:
        ValueError: division by zero.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([7, 8], "int32"))
        ...     y = fluid.layers.assign(np.array([2, 3], "int32"))
        ...     out = fluid.layers.elementwise_floordiv(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([3, 2], dtype=int32)]
    """
    return truncated_quotient(xp, *aligned(x, y, axis))
