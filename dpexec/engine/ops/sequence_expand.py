"""``sequence_expand`` and ``sequence_expand_as``: repeat rows by another variable's sequences."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._rows import added_rows
from dpexec.engine.ops._sequences import (
    Ints,
    OverSequences,
    offsets_spec,
    per_row,
    rows_of,
    sequence_sums,
)


def _infer(
    x: Spec, x_lod: Spec | None, y: Spec, y_lod: Spec | None, *, ref_level: int = -1
) -> tuple[Spec, Spec | None]:
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    if y_lod is not None:
        require(
            -1 <= ref_level < y_lod.rank,
            f"ref_level is {ref_level}, but Y has {y_lod.rank} levels of sequences",
        )
    by_rows = x_lod is None and y_lod is not None and y_lod.rank == 1
    out = x.replace(shape=(y.shape[0] if by_rows else -1, *x.shape[1:]))
    return out, None if x_lod is None else offsets_spec(-1)


_LOD = Lod([[0, 2, 3, 6]])
_TWO = Lod([[0, 2, 2, 3], [0, 1, 1, 2]])


def _sample(r: Any, x: Lod | None, rows: int, y: Lod, **attrs: Any) -> Sample:
    inputs = {"X": r.normal((rows, 2)), "Y": r.normal((y.rows, 1)), "Y@LOD": y}
    return Sample({**inputs, "X@LOD": x} if x else inputs, attrs, grad=("X",))


@op(
    "sequence_expand",
    inputs="X X@LOD? Y Y@LOD",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        _sample(r, _LOD, 6, _TWO, ref_level=0),
        _sample(r, _LOD, 6, _TWO),
        _sample(r, None, 3, _TWO, ref_level=0),
        _sample(r, None, 3, _LOD, ref_level=-1),
        _sample(r, Lod([[0, 0, 2, 3]]), 3, _LOD),
        Sample(
            {
                "X": np.array([[1.0], [2.0], [3.0]]),
                "X@LOD": Lod([[0, 2, 3]]),
                "Y": np.zeros((3, 1)),
                "Y@LOD": Lod([[0, 2, 3]]),
            },
            grad=("X",),
            expected={
                "Out": np.array([[1.0], [2.0], [1.0], [2.0], [3.0]]),
                "Out@LOD": Lod([[0, 2, 4, 5]]),
            },
        ),
    ],
    grad_lod="own",
)
def sequence_expand(
    xp: Any, x: Any, x_lod: Lod | None, y: Any, y_lod: Lod, *, ref_level: int = -1
) -> tuple[Any, Lod]:
    """Every sequence (or row) of X, repeated by the length of the sequence of Y with its number.

    ``ref_level`` is the level of Y's sequences, -1 for the finest. Source: Paddle op
    ``sequence_expand``.

    Raises:
        ValueError: X has another number of sequences than Y.
    """
    repeats = _repeats(y_lod, ref_level)
    if not x_lod:
        _check_count(len(x), repeats)
        return per_row(xp, x, Lod.of_lengths([repeats])), Lod()
    rows, lengths = _chosen(x_lod, repeats)
    return xp.take(x, xp.asarray(rows), axis=0), Lod.of_lengths([lengths])


def _repeats(lod: Lod, level: int) -> Ints:
    """The lengths of the sequences of a level; offsets refuse a tensor without sequences."""
    return np.diff(lod.levels[level] if lod else lod.offsets)


def _check_count(count: int, repeats: Ints) -> None:
    if count != len(repeats):
        raise ValueError(f"X has {count} sequences (or rows), but Y has {len(repeats)}")


def _chosen(lod: Lod, repeats: Ints) -> tuple[Ints, Ints]:
    """Numbers of the rows in a repeated X, and the lengths of its sequences."""
    lengths = lod.lengths
    _check_count(len(lengths), repeats)
    chosen = np.repeat(np.arange(len(repeats)), repeats)
    return rows_of(lod.offsets[chosen], lengths[chosen]), lengths[chosen]


@sequence_expand.grad("X", "X@LOD?", "Y", "Y@LOD", "Out@GRAD", outputs="X@GRAD", dense=True)
def sequence_expand_grad(
    xp: Any,
    x: Any,
    x_lod: Lod | None,
    y: Any,
    y_lod: Lod,
    d_out: Any,
    sums: OverSequences = sequence_sums,
    *,
    ref_level: int = -1,
) -> Any:
    """The gradients of all copies, added up."""
    repeats = _repeats(y_lod, ref_level)
    if not x_lod:
        return sums(xp, d_out, Lod.of_lengths([repeats]))
    rows, _ = _chosen(x_lod, repeats)
    return added_rows(xp, xp.asarray(rows), d_out, x.shape)


def _infer_as(x: Spec, y: Spec, y_lod: Spec | None) -> tuple[Spec, Spec | None]:
    require(x.rank >= 2, f"X {x} must have two dimensions or more")
    if y_lod is not None:
        require(y_lod.rank == 1, f"Y must have one level of sequences, but has {y_lod.rank}")
        require(
            y_lod.shape[0] < 0 or dims_match(x.shape[0], y_lod.shape[0] - 1),
            f"X {x} must have a row for every sequence of Y, which has {y_lod.shape[0] - 1}",
        )
    rows = -1 if y_lod is None else y.shape[0]
    return x.replace(shape=(rows, *x.shape[1:]), lod_level=y.lod_level), y_lod


@op(
    "sequence_expand_as",
    inputs="X Y Y@LOD",
    outputs="Out Out@LOD",
    infer=_infer_as,
    samples=lambda r: [
        *(
            Sample({"X": r.normal((3, 2)), "Y": r.normal((lod.rows, 1)), "Y@LOD": lod}, grad=("X",))
            for lod in (_LOD, Lod([[0, 0, 3, 4]]))
        ),
        Sample(
            {"X": np.array([[1.0], [2.0]]), "Y": np.zeros((3, 1)), "Y@LOD": Lod([[0, 2, 3]])},
            grad=("X",),
            expected={"Out": np.array([[1], [1], [2]]), "Out@LOD": Lod([[0, 2, 3]])},
        ),
    ],
    grad_lod="own",
)
def sequence_expand_as(xp: Any, x: Any, y: Any, y_lod: Lod) -> tuple[Any, Lod]:
    """A row of X for every row of Y: the one with the number of its sequence.

    Source: Paddle op ``sequence_expand_as``.
    """
    return per_row(xp, x, y_lod), y_lod


@sequence_expand_as.grad("X", "Y", "Y@LOD", "Out@GRAD", outputs="X@GRAD")
def sequence_expand_as_grad(
    xp: Any, x: Any, y: Any, y_lod: Lod, d_out: Any, sums: OverSequences = sequence_sums
) -> Any:
    """The gradients of all copies, added up."""
    return sums(xp, d_out, y_lod)
