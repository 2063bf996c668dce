"""Comparisons, from ``less_than`` to ``not_equal``, and ``equal_reduce``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import OpDef, Passing, RoundValues, Sample, SampleRng, Spec, op
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._edges import NUMBERS, edge
from dpexec.engine.ops._elementwise import aligned, infer_comparison
from dpexec.engine.ops._tables import first_name


def _pass_less(op: Operator) -> Callable[[RoundValues], bool]:
    """Of single numbers; what comes out is known."""
    x_name, y_name = first_name(op.inputs, "X"), first_name(op.inputs, "Y")
    out = first_name(op.outputs, "Out")

    def passes(values: RoundValues) -> bool:
        x, y = values[x_name], values[y_name]
        if x.shape != (1,) or y.shape != (1,):
            return False
        values[out] = x < y
        return True

    return passes


def _samples(r: SampleRng, expected: list[bool]) -> list[Sample]:
    return [
        Sample(
            {"X": np.array([1.0, 2.0, 3.0]), "Y": np.array([2.0, 2.0, 2.0])},
            expected={"Out": np.array(expected)},
        ),
        Sample({"X": r.integers(0, 3, (2, 3, 4)), "Y": r.integers(0, 3, (3,))}, {"axis": 1}),
        Sample({"X": r.integers(0, 3, (3, 4)) * 0.5, "Y": r.integers(0, 3, (3, 4)) * 0.5}),
        Sample(
            {"X": r.integers(0, 3, (3, 1)), "Y": r.integers(0, 3, (3, 4))},
            deviates={
                "Out": "gives the shape of X if Y is larger; dpexec gives that of both together"
            },
        ),
    ]


def _declare(
    name: str, symbol: str, expected: list[bool], *edges: Sample, passes: Passing | None = None
) -> OpDef:
    function = name.replace("_than", "")

    def compare(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
        x, y = aligned(x, y, axis)
        return getattr(xp, function)(x, y)

    compare.__name__ = name
    compare.__doc__ = f"""``x {symbol} y``, element by element, with fluid's broadcasting of y.

    Source: Paddle op ``{name}``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([1.0, 2.0, 3.0], "float32"))
        ...     y = fluid.layers.assign(np.array([2.0, 2.0, 2.0], "float32"))
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[fluid.layers.{name}(x, y)])
        [{np.array(expected)!r}]
    """
    return op(
        name,
        inputs="X Y",
        infer=infer_comparison,
        attrs={"force_cpu": False},
        no_grad=True,
        capturable=True,
        makes_numbers=True,
        quantized="inputs",
        passes=passes,
        flops=per_element("Out", 1),
        samples=lambda r: [*edges, *_samples(r, expected)],
    )(compare)


less_than = _declare(
    *("less_than", "<", [True, False, False]),
    passes=Passing(_pass_less, looks_at=("X", "Y"), code="less", slots=("Out", "X", "Y")),
)
less_equal = _declare("less_equal", "<=", [True, True, False])
greater_than = _declare("greater_than", ">", [False, False, True])
greater_equal = _declare("greater_equal", ">=", [False, True, True])
_NEAR = edge(
    {"X": NUMBERS * 1e-9, "Y": np.zeros((3, 4))},
    "Out",
    "treats floating-point numbers as equal if they differ by less than 1e-8; dpexec does not",
)
equal = _declare("equal", "==", [False, True, False], _NEAR)
not_equal = _declare("not_equal", "!=", [True, False, True], _NEAR)


def _infer_reduce(x: Spec, y: Spec, *, axis: int = -1) -> Spec:
    return infer_comparison(x, y, axis=axis).replace(shape=(1,))


@op(
    "equal_reduce",
    inputs="X Y",
    infer=_infer_reduce,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {"X": np.array([[1.0, 2.0]] * 2), "Y": np.array([1.0, 2.0])},
            expected={"Out": np.array([True])},
        ),
        Sample(
            {"X": np.array([1, 2, 3]), "Y": np.array([1, 2, 4])},
            expected={"Out": np.array([False])},
        ),
        Sample({"X": np.array([[3, 3], [4, 4]]), "Y": np.array([3, 4])}, {"axis": 0}),
        Sample({"X": np.array([np.nan]), "Y": np.array([np.nan])}),
    ],
)
def equal_reduce(xp: Any, x: Any, y: Any, *, axis: int = -1) -> Any:
    """Whether all elements are equal, ``(1,)``, with fluid's broadcasting of y.

    Source: Paddle op ``equal_reduce``.
    """
    x, y = aligned(x, y, axis)
    return (x == y).all().reshape(1)
