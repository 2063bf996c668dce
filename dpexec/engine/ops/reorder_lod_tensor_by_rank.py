"""``reorder_lod_tensor_by_rank``: sequences in the order of a rank table."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.lod import Lod, LoDRankTable
from dpexec.engine.ir.opdef import GradContext, GradOp, Spec, op
from dpexec.engine.ops._tables import Ints, offsets, picked, require_table


def _infer(x: Spec, lod: Spec | None, table: Spec) -> tuple[Spec, Spec | None]:
    require_table(table)
    return x, offsets(x.lod_level) if lod is None else lod


@op(
    "reorder_lod_tensor_by_rank",
    inputs="X X@LOD? RankTable",
    outputs="Out Out@LOD",
    infer=_infer,
    checks_values=True,
)
def reorder_lod_tensor_by_rank(
    xp: Any, x: Any, lod: Lod | None, table: LoDRankTable
) -> tuple[Any, Lod]:
    """The sequences of ``x``, or its rows if it has none, in the order of a table.

    Source: Paddle op ``reorder_lod_tensor_by_rank``.

    Args:
        xp: the array library.
        x: the tensor.
        lod: its sequences.
        table: the table of another tensor with equally many sequences.

    Raises:
        ValueError: there are more or fewer sequences than in the table.
    """
    return _ordered(xp, x, lod, table.numbers)


def _ordered(xp: Any, x: Any, lod: Lod | None, numbers: Ints) -> tuple[Any, Lod]:
    count = lod.sequences if lod else len(x)
    if count != len(numbers):
        what = "sequences" if lod else "rows"
        raise ValueError(f"X has {count} {what}, but the table is of {len(numbers)} sequences")
    ordered, rows = picked(lod or Lod(), numbers)
    return x[xp.asarray(rows)], ordered


@reorder_lod_tensor_by_rank.grad_maker
def reorder_lod_tensor_by_rank_grad_maker(context: GradContext) -> list[GradOp]:
    """``reorder_lod_tensor_by_rank_grad``."""
    inputs = {"X": context.output_grads["Out"], "RankTable": context.op.inputs["RankTable"]}
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("reorder_lod_tensor_by_rank_grad", inputs, outputs, context.op.plain_attrs())]


@op(
    "reorder_lod_tensor_by_rank_grad",
    inputs="X X@LOD? RankTable",
    infer=lambda d_out, lod, table: d_out,
    grad_lod="own",
)
def reorder_lod_tensor_by_rank_grad(
    xp: Any, d_out: Any, lod: Lod | None, table: LoDRankTable
) -> Any:
    """The gradient in the original order of the sequences.

    Source: Paddle op ``reorder_lod_tensor_by_rank_grad``.
    """
    return _ordered(xp, d_out, lod, np.argsort(table.numbers))[0]
