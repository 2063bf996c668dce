"""``sequence_slice``: a piece of every sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import (
    Ints,
    offsets_spec,
    on_host,
    rows_of,
    sequence_count,
    with_finest,
)
from dpexec.engine.ops._shapes import require_integer, same_dims

_LOD = Lod([[0, 3, 5]])


def _infer(x: Spec, lod: Spec | None, offset: Spec, length: Spec) -> tuple[Spec, Spec | None]:
    for name, spec in (("Offset", offset), ("Length", length)):
        require_integer(spec, name)
        require(
            same_dims(spec.shape, (sequence_count(lod), 1)),
            f"{name} {spec} must be a column with a number per sequence",
        )
    rows = x.shape[0] if lod is None else -1
    made = None if lod is None else offsets_spec(sequence_count(lod))
    return x.replace(shape=(rows, *x.shape[1:]), lod_level=0), made


def _column(*numbers: int) -> Ints:
    return np.array(numbers)[:, None]


@op(
    "sequence_slice",
    inputs="X X@LOD Offset Length",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        *(
            Sample({"X": r.normal(shape), "X@LOD": _LOD, "Offset": offset, "Length": length})
            for shape, offset, length in (
                ((5, 2), _column(1, 0), _column(2, 1)),
                ((5, 1, 2), _column(0, 0), _column(3, 2)),
                ((5, 1), _column(2, 1), _column(1, 1)),
                ((5, 2), _column(3, 0), _column(0, 1)),
            )
        ),
        Sample(
            {
                "X": np.array([[1], [2], [3], [4], [5]]),
                "X@LOD": _LOD,
                "Offset": _column(1, 0),
                "Length": _column(2, 1),
            },
            expected={"Out": np.array([[2], [3], [4]]), "Out@LOD": Lod([[0, 2, 3]])},
        ),
    ],
    grad_lod="own",
    flops=0,
)
def sequence_slice(xp: Any, x: Any, lod: Lod, offset: Any, length: Any) -> tuple[Any, Lod]:
    """``Length`` rows of every sequence from row ``Offset`` of it on.

    Source: Paddle op ``sequence_slice``.

    Raises:
        ValueError: a sequence does not have these rows.
    """
    starts, lengths = _piece(lod, offset, length)
    rows = rows_of(starts, lengths)
    return xp.take(x, xp.asarray(rows), axis=0), with_finest(lod, lengths)


def _piece(lod: Lod, offset: Any, length: Any) -> tuple[Ints, Ints]:
    """First rows and lengths of the pieces."""
    first, lengths = on_host(offset), on_host(length)
    wrong = (first < 0) | (lengths < 0) | (first + lengths > lod.lengths)
    if wrong.any():
        i = int(wrong.argmax())
        raise ValueError(
            f"{lengths[i]} rows from row {first[i]} on are no piece of sequence {i}, "
            f"which has {lod.lengths[i]}"
        )
    return lod.offsets[:-1] + first, lengths


@sequence_slice.grad("X", "X@LOD", "Offset", "Length", "Out@GRAD", outputs="X@GRAD", dense=True)
def sequence_slice_grad(xp: Any, x: Any, lod: Lod, offset: Any, length: Any, d_out: Any) -> Any:
    """The gradient for the piece, 0 for the rest."""
    grad = xp.zeros(x.shape, d_out.dtype)
    grad[xp.asarray(rows_of(*_piece(lod, offset, length)))] = d_out
    return grad
