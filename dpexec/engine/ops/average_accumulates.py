"""``average_accumulates``: running sums of a parameter, for ``fluid.optimizer.ModelAverage``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import require_shape_of

Arrays: TypeAlias = tuple[Any, ...]

MOST = 16384
"""The number of additions after which a sum is added to the next one, to limit rounding errors."""

_STATES = ("sum_1", "sum_2", "sum_3", "num_accumulates", "old_num_accumulates", "num_updates")
_INPUTS = " ".join(["param", *(f"in_{name}" for name in _STATES)])
_OUTPUTS = " ".join(f"out_{name}" for name in _STATES)


def _infer(
    param: Spec,
    *states: Spec,
    min_average_window: int = 10000,
    max_average_window: int,
) -> tuple[Spec, ...]:
    require(
        min_average_window <= max_average_window,
        f"min_average_window {min_average_window} must not exceed max_average_window "
        f"{max_average_window}",
    )
    for state in states[:3]:
        require_shape_of(state, param, "a sum", "the parameter")
    for state in states[3:]:
        require(state.size in (1, -1), f"a counter {state} must have one element")
    return states


def _samples(_: Any) -> list[Sample]:
    def case(counts: tuple[int, int, int], sums: tuple[float, ...], after: Any) -> Sample:
        names = _INPUTS.split()
        values = [np.array([2.0]), *(np.array([v]) for v in sums), *(np.array([n]) for n in counts)]
        expected = {k: np.array([v]) for k, v in zip(_OUTPUTS.split(), after, strict=True)}
        window = {"average_window": 0.5, "min_average_window": 2, "max_average_window": 4}
        return Sample(dict(zip(names, values, strict=True)), window, expected=expected)

    return [
        case((0, 0, 0), (0.0, 0.0, 0.0), (2.0, 0.0, 0.0, 1, 0, 1)),
        case((1, 0, 1), (3.0, 0.5, 0.0), (0.0, 0.0, 5.5, 0, 2, 2)),
        case((0, 2, MOST - 1), (3.0, 0.5, 1.0), (0.0, 5.5, 1.0, 1, 2, MOST)),
    ]


@op(
    "average_accumulates",
    inputs=_INPUTS,
    outputs=_OUTPUTS,
    infer=_infer,
    inplace={f"out_{name}": f"in_{name}" for name in _STATES},
    no_grad=True,
    samples=_samples,
    operand_ulps=1,
)
def average_accumulates(
    xp: Any,
    param: Any,
    sum_1: Any,
    sum_2: Any,
    sum_3: Any,
    num_accumulates: Any,
    old_num_accumulates: Any,
    num_updates: Any,
    *,
    average_window: float = 0.0,
    max_average_window: int,
    min_average_window: int = 10000,
) -> Any:
    """Add the parameter to the sums; when the window is full, the sums become the old ones.

    The parameter is added to ``sum_1``; after 16384 updates ``sum_1`` is added to ``sum_2``;
    ``sum_3`` has the sum of the previous window. Source: Paddle op ``average_accumulates``.
    """
    states = sum_1, sum_2, sum_3, num_accumulates, old_num_accumulates, num_updates
    updates, count, old = num_updates + 1, num_accumulates + 1, old_num_accumulates
    sums = (sum_1 + param, sum_2, sum_3)
    moves = updates % MOST == 0
    sums = _either(xp, moves, lambda a, b, c: (xp.zeros_like(a), a + b, c), sums)
    window = xp.minimum((updates * average_window).astype(updates.dtype), max_average_window)
    full = (count >= min_average_window) & (count >= window)
    sums = _either(xp, full, lambda a, b, c: (xp.zeros_like(a), xp.zeros_like(b), a + b), sums)
    counts = _either(xp, full, lambda count, _: (xp.zeros_like(count), count), (count, old))
    for state, new in zip(states, (*sums, *counts, updates), strict=True):
        state[...] = new
    return states


def _either(xp: Any, changes: Any, change: Callable[..., Arrays], values: Arrays) -> Arrays:
    """Values that change under a condition.

    Args:
        xp: ``numpy`` or ``cupy``.
        changes: the condition, ``(1,)``. On a GPU the host does not read it, because it would wait.
        change: function from the values to the changed ones.
        values: arrays.
    """
    if xp is np:
        return change(*values) if changes else values
    pairs = zip(change(*values), values, strict=True)
    return tuple(xp.where(changes.reshape(()), new, old) for new, old in pairs)
