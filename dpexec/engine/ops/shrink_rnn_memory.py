"""``shrink_rnn_memory``: the state's rows of the sequences that reach a time step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, LoDRankTable
from dpexec.engine.ir.opdef import Passing, RoundValues, Spec, op, require
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._tables import first_name, levels_of, offsets, require_table, some_rows


def _infer(x: Spec, lod: Spec | None, table: Spec, step: Spec) -> tuple[Spec, Spec | None]:
    require_table(table)
    require(
        step.dtype == VarType.INT64 and step.size in (1, -1),
        f"the time step I must be int64 with one element, but it is {step}",
    )
    return some_rows(x, running=True), offsets(levels_of(x, lod))


def _pass_rows(op: Operator) -> Callable[[RoundValues], bool]:
    """Rows that are no sequences."""
    x, x_lod, table, index = (
        first_name(op.inputs, slot) for slot in ("X", "X@LOD", "RankTable", "I")
    )
    out, out_lod = first_name(op.outputs, "Out"), first_name(op.outputs, "Out@LOD")

    def passes(values: RoundValues) -> bool:
        if x_lod and values[x_lod]:
            return False
        running = values[table].longer_than(values[index].item())
        values[out] = values[x][:running]
        if out_lod:
            values[out_lod] = NO_SEQUENCES
        return True

    return passes


@op(
    "shrink_rnn_memory",
    inputs="X X@LOD? RankTable I",
    outputs="Out Out@LOD",
    infer=_infer,
    host_inputs="I",
    passes=Passing(
        _pass_rows,
        looks_at=("I", "RankTable"),
        unseen="Out",
        code="shrink",
        slots=("Out", "X", "RankTable", "I", "X@LOD", "Out@LOD"),
    ),
)
def shrink_rnn_memory(
    xp: Any, x: Any, lod: Lod | None, table: LoDRankTable, step: Any
) -> tuple[Any, Lod]:
    """The first rows (or sequences) of ``x``: those of sequences longer than ``I``.

    Source: Paddle op ``shrink_rnn_memory``.

    Args:
        xp: the array library.
        x: a row (or sequence) for each sequence of the previous step, in the order of the table.
        lod: its sequences.
        table: the sequences' lengths.
        step: number of the time step.
    """
    running = table.longer_than(int(step.item()))
    if not lod:
        return x[:running], NO_SEQUENCES
    first, rows = lod.part(0, running)
    return x[rows], first


@shrink_rnn_memory.grad("X", "Out@GRAD", outputs="X@GRAD")
def shrink_rnn_memory_grad(xp: Any, x: Any, d_out: Any) -> Any:
    """The gradient, 0 for the rows of sequences that have ended."""
    if len(d_out) == len(x):
        return d_out
    d_x = xp.zeros_like(x)
    d_x[: len(d_out)] = d_out
    return d_x
