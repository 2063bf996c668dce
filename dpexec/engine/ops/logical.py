"""Logic on booleans: ``logical_and``, ``logical_or``, ``logical_xor``, ``logical_not``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import OpDef, Sample, Spec, op, require

_X = np.array([True, True, False, False])
_Y = np.array([True, False, True, False])


def _infer(x: Spec, y: Spec) -> Spec:
    require(x.dtype == y.dtype == VarType.BOOL, f"X {x} and Y {y} must hold bool")
    require(
        min(*x.shape, *y.shape, 1) < 0 or x.size == y.size,
        f"X {x} and Y {y} must have equally many elements",
    )
    return x


def _declare(name: str, symbol: str, expected: list[bool], **facts: Any) -> OpDef:
    def combine(xp: Any, x: Any, y: Any) -> Any:
        return getattr(xp, name)(x, y.reshape(x.shape))

    combine.__name__ = name
    combine.__doc__ = f"""``x {symbol} y``, element by element; the result has the shape of X.

    Y may have another shape with as many elements. Source: Paddle op ``{name}``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([True, True, False, False]))
        ...     y = fluid.layers.assign(np.array([True, False, True, False]))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.{name}(x, y)])
        [{np.array(expected)!r}]
    """
    return op(
        name,
        inputs="X Y",
        infer=_infer,
        no_grad=True,
        **facts,
        samples=lambda r: [
            Sample({"X": _X, "Y": _Y}, expected={"Out": np.array(expected)}),
            Sample({"X": _X.reshape(2, 2), "Y": _Y.reshape(2, 2)}),
            Sample({"X": _X[:1], "Y": _Y[-1:]}),
        ],
    )(combine)


logical_and = _declare("logical_and", "and", [True, False, False, False], makes_numbers=True)
logical_or = _declare("logical_or", "or", [True, True, True, False], makes_numbers=True)
logical_xor = _declare("logical_xor", "xor", [False, True, True, False])


def _infer_not(x: Spec) -> Spec:
    require(x.dtype == VarType.BOOL, f"X {x} must hold bool")
    return x


@op(
    "logical_not",
    inputs="X",
    infer=_infer_not,
    no_grad=True,
    samples=lambda r: [
        Sample({"X": _X}, expected={"Out": ~_X}),
        Sample({"X": _X.reshape(2, 1, 2)}),
        Sample({"X": _X[:1]}),
    ],
    makes_numbers=True,
)
def logical_not(xp: Any, x: Any) -> Any:
    """``not x``, element by element. Source: Paddle op ``logical_not``."""
    return xp.logical_not(x)
