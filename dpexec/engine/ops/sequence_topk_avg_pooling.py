"""``sequence_topk_avg_pooling``: means of the greatest numbers in rows of matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._sequences import Ints

_ROWS, _COLUMNS = Lod([[0, 2, 3]]), Lod([[0, 2, 6]])


def _infer(
    x: Spec,
    lod: Spec | None,
    row: Spec,
    row_lod: Spec | None,
    column: Spec,
    column_lod: Spec | None,
    *,
    topks: Sequence[int],
    channel_num: int,
) -> tuple[Spec, Spec | None, Spec | None]:
    require(topks and min(topks) > 0, f"topks must be positive numbers, but is {list(topks)}")
    require(channel_num > 0, f"channel_num must be positive, but is {channel_num}")
    column_of_numbers = x.rank == 2 and x.shape[1] in (1, -1)
    require(column_of_numbers or x.rank == 1, f"X {x} must be a vector or a column")
    rows = -1 if row_lod is None else row.shape[0]
    out = x.replace(shape=(rows, channel_num * len(topks)))
    numbers = -1 if rows < 0 else rows * channel_num * max(topks)
    pos = None if row_lod is None else Spec((numbers,), VarType.INT32)
    return out, pos, row_lod


def _sample(r: Any, topks: list[int], channels: int, rows: Lod, columns: Lod) -> Sample:
    lengths = channels * rows.lengths * columns.lengths
    inputs = {
        "X": r.distinct((int(lengths.sum()), 1)),
        "X@LOD": Lod.of_lengths([lengths]),
        "ROW": np.zeros((rows.rows, 1)),
        "ROW@LOD": rows,
        "COLUMN": np.zeros((columns.rows, 1)),
        "COLUMN@LOD": columns,
    }
    return Sample(inputs, {"topks": topks, "channel_num": channels}, grad=("X",))


def _of_vector(sample: Sample) -> Sample:
    inputs = {**sample.inputs, "X": sample.inputs["X"].reshape(-1)}
    return Sample(inputs, sample.attrs, grad=sample.grad)


@op(
    "sequence_topk_avg_pooling",
    inputs="X X@LOD ROW ROW@LOD COLUMN COLUMN@LOD",
    outputs="Out pos Out@LOD",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        _sample(r, [1, 3], 2, _ROWS, _COLUMNS),
        _sample(r, [2], 1, _COLUMNS, _ROWS),
        _of_vector(_sample(r, [1, 2], 2, _ROWS, _COLUMNS)),
        _sample(r, [1, 2, 5], 3, Lod([[0, 1, 3]]), Lod([[0, 4, 5]])),
    ],
    operand_ulps=2,
)
def sequence_topk_avg_pooling(
    xp: Any,
    x: Any,
    lod: Lod,
    row: Any,
    row_lod: Lod,
    column: Any,
    column_lod: Lod,
    *,
    topks: Sequence[int],
    channel_num: int,
) -> tuple[Any, Any, Lod]:
    """Means of the ``k`` greatest numbers in every row of matrices, for each k in ``topks``.

    A sequence of X holds ``channel_num`` matrices, with a row for every row of ROW's sequence and a
    column for every row of COLUMN's sequence. A row of the result has the means for each channel
    and each of ``topks``; if a matrix has fewer columns, the missing ones count as 0.
    ``pos`` are the columns of the greatest numbers, -1 for missing ones. Source: Paddle op
    ``sequence_topk_avg_pooling``.

    Raises:
        ValueError: sequences of X do not have these sizes.
    """
    most, width = max(topks), channel_num * len(topks)
    out = xp.empty((row_lod.rows, channel_num, len(topks)), x.dtype)
    pos = xp.full((row_lod.rows, channel_num, most), -1, np.int32)
    for rows, numbers, shape in _matrices(lod, row_lod, column_lod, channel_num):
        values = x[numbers].reshape(shape)
        order = xp.argsort(-values, axis=2, kind="stable")[:, :, :most]
        pos[rows, :, : order.shape[2]] = order.transpose(1, 0, 2)
        sums = xp.cumsum(xp.take_along_axis(values, order, axis=2), axis=2)
        for i, k in enumerate(topks):
            taken = min(k, shape[2])
            out[rows, :, i] = (sums[:, :, taken - 1] / k).T if taken else 0
    return out.reshape(-1, width), pos.reshape(-1), row_lod


def _matrices(
    lod: Lod, rows: Lod, columns: Lod, channels: int
) -> Iterator[tuple[slice, slice, tuple[int, int, int]]]:
    """Rows of the result, numbers of X, and their shape, for every sequence."""
    sizes = channels * rows.lengths * columns.lengths
    if (lod.lengths != sizes).any():
        raise ValueError(
            f"X must have sequences of {sizes.tolist()} numbers, channel_num times the lengths "
            f"of ROW's and COLUMN's, but they have {lod.lengths.tolist()}"
        )
    for (a, b), (start, stop), count in zip(
        rows.spans(), lod.spans(), columns.lengths.tolist(), strict=True
    ):
        yield slice(a, b), slice(start, stop), (channels, b - a, count)


@sequence_topk_avg_pooling.grad(
    "X X@LOD ROW ROW@LOD COLUMN COLUMN@LOD pos Out@GRAD",
    outputs="X@GRAD",
    operand_ulps=2,
)
def sequence_topk_avg_pooling_grad(
    xp: Any,
    x: Any,
    lod: Lod,
    row: Any,
    row_lod: Lod,
    column: Any,
    column_lod: Lod,
    pos: Any,
    d_out: Any,
    *,
    topks: Sequence[int] = (),
    channel_num: int = 0,
) -> Any:
    """The gradient of each counted number: its share of the gradients of the means."""
    most = max(topks)
    parts = xp.asarray(_parts(topks).astype(d_out.dtype))
    d_pos = d_out.reshape(-1, channel_num, len(topks)) @ parts
    pos = pos.reshape(-1, channel_num, most)
    grad = xp.zeros(x.shape, d_out.dtype)
    for rows, numbers, shape in _matrices(lod, row_lod, column_lod, channel_num):
        count = min(most, shape[2])  # there are no more columns
        order = pos[rows, :, :count].transpose(1, 0, 2)
        matrix = grad[numbers].reshape(shape)  # a view
        xp.put_along_axis(matrix, order, d_pos[rows, :, :count].transpose(1, 0, 2), axis=2)
    return grad


def _parts(topks: Sequence[int]) -> Ints:
    """For every mean, the share of each of the greatest numbers."""
    numbers = np.arange(max(topks))
    return np.stack([(numbers < k) / k for k in topks])
