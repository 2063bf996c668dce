"""``rnn_memory_helper``: a step's value under its name in the enclosing operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Passing, RoundValues, Sample, op, same_as
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ops._tables import first_name


def _pass_same(given: str, made: str, like: str = "") -> Passing:
    """The array of one slot is that of another one."""

    def make(op: Operator) -> Callable[[RoundValues], bool]:
        x, out = first_name(op.inputs, given), first_name(op.outputs, made)

        def passes(values: RoundValues) -> bool:
            values[out] = values[x]
            return True

        return passes

    return Passing(make, unseen=made, code="pass", slots=(made, given, like))


@op(
    "rnn_memory_helper",
    inputs="X",
    infer=same_as("X"),
    attrs={"dtype": VarType.FP32},
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}),
        Sample({"X": r.normal((4,))}),
        Sample({"X": r.normal((1, 2, 2))}, {"dtype": VarType.FP64}),
    ],
    grad_lod="flow",
    passes=_pass_same("X", "Out"),
)
def rnn_memory_helper(xp: Any, x: Any) -> Any:
    """``x`` itself, not a copy. Source: Paddle op ``rnn_memory_helper``."""
    return x


@rnn_memory_helper.grad(
    *("X", "Out", "Out@GRAD?"),
    outputs="X@GRAD",
    lazy=True,
    passes=_pass_same("Out@GRAD", "X@GRAD", like="X"),
)
def rnn_memory_helper_grad(xp: Any, x: Any, out: Any, d_out: Any) -> Any:
    """The gradient itself; zeros if nothing comes from later steps."""
    return xp.zeros_like(x) if d_out is None else d_out
