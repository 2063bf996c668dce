"""``match_matrix_tensor``: match scores of all pairs of words of two texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import offsets_spec, require_sequences, sequence_count
from dpexec.engine.ops._shapes import same_dims


def _infer(
    x: Spec, x_lod: Spec | None, y: Spec, y_lod: Spec | None, w: Spec, *, dim_t: int = 1
) -> tuple[Spec, Spec, Spec]:
    for name, spec, lod in (("X", x, x_lod), ("Y", y, y_lod)):
        require(spec.rank == 2, f"{name} {spec} must be (rows, width)")
        require_sequences(spec, lod, name)
    shape = (x.shape[1], dim_t, y.shape[1])
    require(
        same_dims(w.shape, shape),
        f"W {w} must be {shape}: the width of X, dim_t, the width of Y",
    )
    require(
        min(sequence_count(x_lod), sequence_count(y_lod)) < 0
        or sequence_count(x_lod) == sequence_count(y_lod),
        f"X and Y must have as many sequences, but have {x_lod} and {y_lod}",
    )
    known = min(x.shape[0], w.shape[2]) >= 0
    tmp = Spec((x.shape[0] * dim_t * w.shape[2] if known else -1, 1), x.dtype)
    return x.replace(shape=(-1, 1)), tmp, offsets_spec(sequence_count(x_lod))


def _sample(r: Any, channels: int, x_lod: Lod, y_lod: Lod) -> Sample:
    inputs = {
        "X": r.normal((x_lod.rows, 3)),
        "X@LOD": x_lod,
        "Y": r.normal((y_lod.rows, 3)),
        "Y@LOD": y_lod,
        "W": r.normal((3, channels, 3)),
    }
    return Sample(inputs, {"dim_t": channels})


@op(
    "match_matrix_tensor",
    inputs="X X@LOD Y Y@LOD W",
    outputs="Out Tmp Out@LOD",
    infer=_infer,
    samples=lambda r: [
        _sample(r, 2, Lod([[0, 2, 5]]), Lod([[0, 3, 4]])),
        _sample(r, 1, Lod([[0, 2]]), Lod([[0, 4]])),
        _sample(r, 3, Lod([[0, 1, 2]]), Lod([[0, 2, 3]])),
    ],
    operand_ulps=2,
    grad_lod="own",
)
def match_matrix_tensor(
    xp: Any, x: Any, x_lod: Lod, y: Any, y_lod: Lod, w: Any, *, dim_t: int = 1
) -> tuple[Any, Any, Lod]:
    """``x @ W[:, t] @ y.T`` for every ``t`` and every pair of sequences.

    ``Out`` is a column. Each of its sequences holds ``dim_t`` matrices, with a row for every row of
    X's sequence and a column for every row of Y's sequence. ``Tmp`` is ``x @ W`` as a column.
    Source: Paddle op ``match_matrix_tensor``.
    """
    tmp = (x @ w.reshape(x.shape[1], -1)).reshape(len(x), dim_t, -1)
    lod = Lod.of_lengths([dim_t * x_lod.lengths * y_lod.lengths])
    out = xp.empty((lod.rows, 1), x.dtype)
    for rows, columns, numbers in _pairs(x_lod, y_lod, lod):
        left = tmp[rows].transpose(1, 0, 2)
        out[numbers] = (left @ y[columns].T).reshape(-1, 1)
    return out, tmp.reshape(-1, 1), lod


def _pairs(x_lod: Lod, y_lod: Lod, lod: Lod) -> Iterator[tuple[slice, slice, slice]]:
    """Rows of X, of Y and of the result for every pair of sequences."""
    for spans in zip(x_lod.spans(), y_lod.spans(), lod.spans(), strict=True):
        rows, columns, numbers = (slice(*span) for span in spans)
        yield rows, columns, numbers


@match_matrix_tensor.grad(
    "X X@LOD Y Y@LOD W Tmp Out@GRAD",
    outputs="X@GRAD Y@GRAD W@GRAD",
    operand_ulps=2,
)
def match_matrix_tensor_grad(
    xp: Any,
    x: Any,
    x_lod: Lod,
    y: Any,
    y_lod: Lod,
    w: Any,
    tmp: Any,
    d_out: Any,
    *,
    dim_t: int = 1,
) -> tuple[Any, Any, Any]:
    """The gradients of Y and of ``x @ W``, and from the latter those of X and W."""
    lod = Lod.of_lengths([dim_t * x_lod.lengths * y_lod.lengths])
    tmp = tmp.reshape(len(x), dim_t, -1)
    d_tmp, d_y = xp.empty_like(tmp), xp.empty_like(y)
    for rows, columns, numbers in _pairs(x_lod, y_lod, lod):
        left = tmp[rows].transpose(1, 0, 2)
        grad = d_out[numbers].reshape(dim_t, left.shape[1], columns.stop - columns.start)
        d_y[columns] = xp.einsum("tij,tih->jh", grad, left)
        d_tmp[rows] = (grad @ y[columns]).transpose(1, 0, 2)
    matrix, d_tmp = w.reshape(x.shape[1], -1), d_tmp.reshape(len(x), -1)
    return d_tmp @ matrix.T, d_y, (x.T @ d_tmp).reshape(w.shape)
