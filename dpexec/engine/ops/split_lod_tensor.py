"""``split_lod_tensor`` and ``merge_lod_tensor``: divide samples for two branches, merge results."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import GradContext, GradOp, Spec, op, require
from dpexec.engine.ops._sequences import on_host
from dpexec.engine.ops._tables import levels_of, offsets, picked, some_rows


def _require_mask(mask: Spec) -> None:
    require(
        mask.dtype == VarType.BOOL and mask.rank == 2 and mask.shape[1] in (1, -1),
        f"Mask must be bool with one column, but it is {mask}",
    )


def _infer_split(
    x: Spec, lod: Spec | None, mask: Spec, *, level: int = 0
) -> tuple[Spec, Spec, Spec | None, Spec | None]:
    _require_mask(mask)
    out = some_rows(x, running=True)
    levels = offsets(levels_of(x, lod))
    return out, out, levels, levels


@op(
    "split_lod_tensor",
    inputs="X X@LOD? Mask",
    outputs="OutTrue OutFalse OutTrue@LOD OutFalse@LOD",
    infer=_infer_split,
)
def split_lod_tensor(
    xp: Any, x: Any, lod: Lod | None, mask: Any, *, level: int = 0
) -> tuple[Any, Any, Lod, Lod]:
    """The sequences, or rows, for which the mask holds, and the others.

    Source: Paddle op ``split_lod_tensor``.

    Args:
        xp: the array library.
        x: the tensor.
        lod: its sequences; rows are split if there are none.
        mask: bool ``(n, 1)``.
        level: of the sequences.
    """
    inner = Lod((lod or Lod()).levels[level:])
    holds = on_host(mask)
    true, true_rows = picked(inner, np.flatnonzero(holds))
    false, false_rows = picked(inner, np.flatnonzero(~holds))
    return x[xp.asarray(true_rows)], x[xp.asarray(false_rows)], true, false


@split_lod_tensor.grad_maker
def split_lod_tensor_grad(context: GradContext) -> list[GradOp]:
    """The gradients of both parts, merged."""
    inputs = {
        "X": context.op.inputs["X"],
        "Mask": context.op.inputs["Mask"],
        "InTrue": context.output_grads["OutTrue"],
        "InFalse": context.output_grads["OutFalse"],
    }
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("merge_lod_tensor", inputs, outputs, context.op.plain_attrs())]


def _infer_merge(
    x: Spec,
    lod: Spec | None,
    mask: Spec,
    true: Spec,
    true_lod: Spec | None,
    false: Spec,
    false_lod: Spec | None,
    *,
    level: int = 0,
) -> tuple[Spec, Spec | None]:
    _require_mask(mask)
    require(
        true.rank == false.rank and true.dtype == false.dtype,
        f"InTrue {true} and InFalse {false} must have as many dimensions, and one data type",
    )
    return some_rows(true, running=True), offsets(levels_of(true, true_lod))


@op(
    "merge_lod_tensor",
    inputs="X X@LOD? Mask InTrue InTrue@LOD? InFalse InFalse@LOD?",
    outputs="Out Out@LOD",
    infer=_infer_merge,
    checks_values=True,
    lazy=True,
)
def merge_lod_tensor(
    xp: Any,
    x: Any,
    lod: Lod | None,
    mask: Any,
    true: Any,
    true_lod: Lod | None,
    false: Any,
    false_lod: Lod | None,
    *,
    level: int = 0,
) -> tuple[Any, Lod]:
    """The sequences (or rows) of both inputs, merged in the order of the mask.

    Source: Paddle op ``merge_lod_tensor``.

    Args:
        xp: the array library.
        x: a tensor with the levels of sequences above ``level``.
        lod: its sequences.
        mask: bool ``(n, 1)``.
        true: the sequences for which the mask holds; None if the block that computes them had
            none to work on.
        true_lod: their offsets.
        false: the other sequences, or None.
        false_lod: their offsets.
        level: level of the sequences.

    Raises:
        ValueError: the numbers of rows do not fit the mask.
    """
    holds = on_host(mask)
    if true is None or false is None:
        other = false if true is None else true
        require(other is not None, "neither InTrue nor InFalse has a value")
        true, false = (other[:0] if part is None else part for part in (true, false))
    parts = [(true_lod or Lod(), len(true)), (false_lod or Lod(), len(false))]
    sizes = [part.sequences if part else rows for part, rows in parts]
    if sizes != [int(holds.sum()), int((~holds).sum())]:
        raise ValueError(
            f"InTrue and InFalse have {sizes[0]} and {sizes[1]} sequences or rows, but Mask holds "
            f"for {int(holds.sum())} of {len(holds)}"
        )
    both = Lod.merged([part for part, rows in parts if part or rows])
    numbers = np.empty(len(holds), np.int64)
    numbers[holds] = np.arange(sizes[0])
    numbers[~holds] = sizes[0] + np.arange(sizes[1])
    merged, rows = picked(both, numbers)
    above = (lod or Lod()).levels[:level]
    return xp.concatenate([true, false])[xp.asarray(rows)], Lod([*above, *merged.levels])


@op(
    "merge_lod_tensor_infer",
    inputs="X X@LOD? Mask InTrue InTrue@LOD? InFalse InFalse@LOD?",
    outputs="Out Out@LOD",
    infer=_infer_merge,
    checks_values=True,
    lazy=True,
    no_grad=True,
)
def merge_lod_tensor_infer(xp: Any, *inputs: Any, level: int = 0) -> tuple[Any, Lod]:
    """``merge_lod_tensor`` for prediction: it has no gradient.

    Source: Paddle op ``merge_lod_tensor_infer``.
    """
    merged: tuple[Any, Lod] = merge_lod_tensor(xp, *inputs, level=level)
    return merged


@merge_lod_tensor.grad_maker
def merge_lod_tensor_grad(context: GradContext) -> list[GradOp]:
    """The gradient, split."""
    inputs = {"X": context.output_grads["Out"], "Mask": context.op.inputs["Mask"]}
    outputs = {
        "OutTrue": context.input_grads["InTrue"],
        "OutFalse": context.input_grads["InFalse"],
    }
    return [GradOp("split_lod_tensor", inputs, outputs, context.op.plain_attrs())]
