"""``select_input`` and ``select_output``: one of several variables, chosen by number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import Lod
from dpexec.engine.ir.opdef import GradContext, GradOp, Spec, op, require
from dpexec.engine.ops._sequences import at_their_places
from dpexec.engine.ops._tables import offsets


def _require_number(mask: Spec) -> None:
    require(
        mask.dtype == VarType.INT32 and mask.size in (1, -1),
        f"Mask must be int32 with one element, but it is {mask}",
    )


def _infer_input(x: Sequence[Spec], lods: Sequence[Spec], mask: Spec) -> tuple[Spec, Spec | None]:
    """The spec of the first input; dimensions in which the others differ are unknown.

    As in fluid, the result is declared without sequences.
    """
    _require_number(mask)
    if all(spec.rank == x[0].rank for spec in x):
        dims = zip(*(spec.shape for spec in x), strict=True)
        shape = tuple(d[0] if len(set(d)) == 1 else -1 for d in dims)
    else:
        shape = (-1,) * x[0].rank
    return x[0].replace(shape=shape, lod_level=0), offsets(lods[0].rank if lods else 0)


@op(
    "select_input",
    inputs="X[] X@LOD?[] Mask",
    outputs="Out Out@LOD",
    infer=_infer_input,
    lazy=True,
)
def select_input(
    xp: Any, x: list[Any], lods: list[Lod], mask: Any, *, names: Mapping[str, Sequence[str]]
) -> tuple[Any, Lod]:
    """A copy of ``x[mask]``; the others need no value. Source: Paddle op ``select_input``."""
    number = int(mask.reshape(())[()])
    require(0 <= number < len(x), f"Mask is {number}, but there are {len(x)} inputs")
    require(x[number] is not None, f"input number {number}, which Mask selects, has no value")
    offsets_of = at_their_places(names.get("X@LOD", ()), lods)
    return x[number].copy(), offsets_of[number] if lods else Lod()


@select_input.grad_maker
def select_input_grad(context: GradContext) -> list[GradOp]:
    """The gradient goes to the input that was selected."""
    inputs = {"X": context.output_grads["Out"], "Mask": context.op.inputs["Mask"]}
    return [GradOp("select_output", inputs, {"Out": context.input_grads["X"]})]


def _infer_output(x: Spec, mask: Spec) -> Spec:
    """All outputs are like the input: any of them may be selected."""
    _require_number(mask)
    return x


@op("select_output", inputs="X Mask", outputs="Out[]", infer=_infer_output, leaves_out=True)
def select_output(xp: Any, x: Any, mask: Any, *, needs: Sequence[Sequence[bool]]) -> list[Any]:
    """``x`` as output number ``mask``; the others get no value.

    Source: Paddle op ``select_output``.
    """
    number = int(mask.reshape(())[()])
    outputs = len(needs[0])
    require(0 <= number < outputs, f"Mask is {number}, but there are {outputs} outputs")
    return [x.copy() if index == number else None for index in range(outputs)]


@select_output.grad_maker
def select_output_grad(context: GradContext) -> list[GradOp]:
    """The gradient is that of the output that was selected."""
    inputs = {"X": context.output_grads["Out"], "Mask": context.op.inputs["Mask"]}
    return [GradOp("select_input", inputs, {"Out": context.input_grads["X"]})]
