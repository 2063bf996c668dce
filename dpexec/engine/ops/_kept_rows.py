"""Sequences of operators that keep them if the number of rows stays the same."""

from __future__ import annotations

from dpexec.engine.ir.opdef import Spec
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._shapes import product


def with_rows(x: Spec, shape: tuple[int, ...]) -> Spec:
    """The spec of X in another shape, as programs show it: unknown numbers of rows are equal.

    Whether the sequences are kept is decided later, see ``rows_stay`` of an operator.
    """
    if x.lod_level == 0:  # without comparing sizes that a binding leaves open
        return x.replace(shape=shape)
    return x.replace(shape=shape, lod_level=x.lod_level if shape[:1] == x.shape[:1] else 0)


def same_elements(op: Operator, x: Spec, out: Spec) -> bool | None:
    """Whether an operator that only changes the shape keeps the rows; None if only a run tells."""
    if min(*x.shape[:1], *out.shape[:1], 0) == 0:  # no dimension is unknown
        return x.shape[:1] == out.shape[:1]
    before, after = product(x.shape[1:]), product(out.shape[1:])
    return before == after if min(before, after) > 0 else None
