"""``lod_tensor_to_array`` and back: from concatenated sequences to one entry per time step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import StepArray, TensorArray
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, LoDRankTable
from dpexec.engine.ir.opdef import GradContext, GradOp, Spec, op, require
from dpexec.engine.ops._tables import levels_of, offsets, picked, require_table, some_rows


def _infer_to_array(x: Spec, lod: Spec | None, table: Spec) -> Spec:
    require_table(table)
    made = some_rows(x, running=lod is not None)
    inner = max(levels_of(x, lod) - table.lod_level - 1, 0)
    return made.replace(kind=VarType.LOD_TENSOR_ARRAY, lod_level=inner)


@op(
    "lod_tensor_to_array",
    inputs="X X@LOD RankTable",
    infer=_infer_to_array,
    checks_values=True,
)
def lod_tensor_to_array(xp: Any, x: Any, lod: Lod, table: LoDRankTable) -> TensorArray:
    """Entry t has step t of every sequence that is longer than t, in the order of the table.

    For sequences of sequences, such a step is a sequence. Source: Paddle op
    ``lod_tensor_to_array``.

    Args:
        xp: the array library.
        x: the tensor.
        lod: its sequences, with at least as many levels as the table has above and at its own.
        table: the table of ``x``, or of a tensor with equally long sequences.

    Raises:
        ValueError: the table has other lengths. Paddle reads rows of other sequences then.
    """
    level = lod.levels[table.level]
    if not np.array_equal(level, table.offsets):
        lengths, ranked = np.diff(level).tolist(), np.diff(table.offsets).tolist()
        problem = f"sequences have lengths {lengths}, in RankTable {ranked}"
        raise ValueError(f"{problem}; what steps together must be equally long")
    inner = Lod(lod.levels[table.level + 1 :])
    chosen, rows = picked(inner, table.members)
    whole = x[xp.asarray(rows)]
    if not inner.levels:
        return StepArray(whole, table.running)
    parts = (chosen.part(span.start, span.stop - span.start) for span in table.spans)
    return TensorArray((whole[part], own) for own, part in parts)


@lod_tensor_to_array.grad_maker
def lod_tensor_to_array_grad(context: GradContext) -> list[GradOp]:
    """The entries of the gradient, as concatenated sequences again."""
    return [_back("array_to_lod_tensor", context)]


def _back(type: str, context: GradContext) -> GradOp:
    inputs = {"X": context.output_grads["Out"], "RankTable": context.op.inputs["RankTable"]}
    return GradOp(type, inputs, {"Out": context.input_grads["X"]}, context.op.plain_attrs())


def _infer_to_tensor(x: Spec, table: Spec) -> tuple[Spec, Spec | None]:
    require(x.kind == VarType.LOD_TENSOR_ARRAY, f"X must be a LoDTensorArray, but it is {x}")
    require_table(table)
    levels = table.lod_level + 1 + x.lod_level
    out = x.replace(kind=VarType.LOD_TENSOR, lod_level=levels)
    if levels > 1 or not table.shape:
        return out, offsets(levels)
    rows, ends = table.shape
    return out.replace(shape=(rows, *x.shape[1:])), Spec((ends,), VarType.INT64, VarType.RAW)


@op(
    "array_to_lod_tensor",
    inputs="X RankTable",
    outputs="Out Out@LOD",
    infer=_infer_to_tensor,
    grad_lod="own",
)
def array_to_lod_tensor(xp: Any, x: TensorArray, table: LoDRankTable) -> tuple[Any, Lod]:
    """Concatenated sequences, in the order before they were ranked.

    Step t of a sequence comes from entry t; missing entries of a gradient are zeros. Source: Paddle
    op ``array_to_lod_tensor``.

    Args:
        xp: the array library.
        x: an entry per time step, with the sequences in the order of the table.
        table: the sequences' numbers and lengths.

    Raises:
        ValueError: entries are missing, or have more or fewer sequences than run in their step.
    """
    whole = x.joined(table.running)
    if whole is not None:
        return whole[xp.asarray(table.places)], Lod([*table.coarse.levels, table.offsets])
    entries = _entries(xp, x, table.running)
    inner, rows = picked(Lod.merged([lod for _, lod in entries]), table.places)
    values = xp.concatenate([array for array, _ in entries])
    return values[xp.asarray(rows)], Lod([*table.coarse.levels, table.offsets, *inner.levels])


def _entries(xp: Any, x: TensorArray, running: list[int]) -> list[tuple[Any, Lod]]:
    """The entries of all steps; zeros where a gradient has none."""
    like = next((entry[0] for entry in x if entry is not None), None)
    if like is None or len(x) > len(running):
        raise ValueError(f"the array has {len(x)} entries for {len(running)} time steps")
    found = []
    for step, (count, entry) in enumerate(itertools.zip_longest(running, x)):
        entry = entry or (xp.zeros((count, *like.shape[1:]), like.dtype), NO_SEQUENCES)
        array, lod = entry
        sequences = lod.sequences if lod.levels else len(array)
        if sequences != count:
            raise ValueError(
                f"entry {step} of the array has {sequences} sequences, but {count} of the table "
                "are long enough"
            )
        found.append(entry)
    return found


@array_to_lod_tensor.grad_maker
def array_to_lod_tensor_grad(context: GradContext) -> list[GradOp]:
    """The gradient, as an entry per time step."""
    return [_back("lod_tensor_to_array", context)]
