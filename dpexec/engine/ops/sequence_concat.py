"""``sequence_concat``: concatenates several variables, sequence by sequence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import Ints, rows_of
from dpexec.engine.ops._shapes import require_same_dtype, same_dims

_A, _B = Lod([[0, 2, 2, 3]]), Lod([[0, 1, 4, 4]])


def _infer(xs: list[Spec], lods: list[Spec]) -> tuple[Spec, Spec | None]:
    require(xs, "input X is missing")
    first = xs[0]
    for x in xs[1:]:
        require_same_dtype(first, x, "all of X")
        sizes = math.prod(first.shape[1:]), math.prod(x.shape[1:])
        known = all(min(spec.shape[1:], default=0) >= 0 for spec in (first, x))
        require(not known or sizes[0] == sizes[1], f"rows of {first} and {x} differ in their size")
    for lod in lods:
        require(lod.rank == 1, "all of X must have one level of sequences")
        require(same_dims(lod.shape, lods[0].shape), "all of X must have as many sequences")
    rows = [x.shape[0] for x in xs]
    total = -1 if min(rows) < 0 or not lods else sum(rows)
    return first.replace(shape=(total, *first.shape[1:])), lods[0] if lods else None


@op(
    "sequence_concat",
    inputs="X[] X@LOD[]",
    outputs="Out Out@LOD",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": [r.normal((3, 2)), r.normal((4, 2))], "X@LOD": [_A, _B]}),
        Sample({"X": [r.normal((3, 1, 2)), r.normal((3, 1, 2))], "X@LOD": [_A, _A]}),
        Sample({"X": [r.normal((3, 4)), r.normal((4, 1, 4))], "X@LOD": [_A, _B]}),
        Sample({"X": [r.normal((3, 2, 3)), r.normal((4, 6))], "X@LOD": [_A, _B]}),
        Sample(
            {"X": [r.normal((3, 1))], "X@LOD": [_A]},
            deviates={"*": "needs two inputs or more; dpexec also takes one"},
        ),
        Sample({"X": [r.normal((n, 1)) for n in (3, 4, 3)], "X@LOD": [_A, _B, _A]}),
        Sample(
            {
                "X": [np.array([[1], [2], [3]]), np.array([[5], [6], [7]])],
                "X@LOD": [Lod([[0, 2, 3]]), Lod([[0, 1, 3]])],
            },
            expected={
                "Out": np.array([[1], [2], [5], [3], [6], [7]]),
                "Out@LOD": Lod([[0, 3, 6]]),
            },
        ),
    ],
    grad_lod="own",
    flops=0,
)
def sequence_concat(xp: Any, xs: list[Any], lods: list[Lod]) -> tuple[Any, Lod]:
    """The first sequences of all variables, then the second ones, and so on.

    The result has the first variable's shape of rows. Rows of the others must have equally many
    elements, and are reshaped. Source: Paddle op ``sequence_concat``.
    """
    width = xs[0].shape[1:]
    whole = xp.concatenate([x.reshape(len(x), *width) for x in xs])
    rows = xp.take(whole, xp.asarray(_order(lods)), axis=0)
    return rows, Lod.of_lengths([sum(lod.lengths for lod in lods)])


def _order(lods: list[Lod]) -> Ints:
    """For every row of the result, its number in the concatenated variables."""
    first = np.cumsum([0, *(lod.rows for lod in lods)])
    starts = [lod.offsets[:-1] + row for lod, row in zip(lods, first, strict=False)]
    lengths = [lod.lengths for lod in lods]
    return rows_of(np.stack(starts, axis=1).ravel(), np.stack(lengths, axis=1).ravel())


@sequence_concat.grad("X[]", "X@LOD[]", "Out@GRAD", outputs="X@GRAD[]", dense=True)
def sequence_concat_grad(
    xp: Any, xs: list[Any], lods: list[Lod], d_out: Any, *, needs: tuple[list[bool]]
) -> list[Any]:
    """For every row, the gradient at its new position."""
    places = np.argsort(_order(lods))
    parts = np.split(places, np.cumsum([len(x) for x in xs])[:-1])
    return [
        xp.take(d_out, xp.asarray(rows), axis=0).reshape(x.shape) if needed else None
        for x, rows, needed in zip(xs, parts, needs[0], strict=True)
    ]
