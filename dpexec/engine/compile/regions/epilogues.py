"""Pairs of operators that one kernel computes, while the values are in the cache."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from dpexec.engine.compile.regions.operands import Brought, Operands
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir import opdef
from dpexec.engine.ir.operator import Operator
from dpexec.engine.kernels.lowering import Value, flat

__all__ = ["Pair", "emit_joined", "joins"]

Emit: TypeAlias = Callable[..., bool]
"""Emits the calls of an operator that also do its neighbour's work, see :meth:`TaskCode.emit`."""

_PAIRS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("mul", "elementwise_add"): ("Out", "X"),
    ("matmul", "elementwise_add"): ("Out", "X"),
    ("batch_norm", "relu"): ("Y", "X"),
    ("relu_grad", "batch_norm_grad"): ("X@GRAD", "Y@GRAD"),
}
"""By the types of two operators: the output slot of the first, and the input slot of the second
that reads it."""


def joins(steps: Sequence[Step], fetched: Collection[str]) -> bool:
    """Whether one kernel may compute two steps, as only the second reads the first one's result.

    The results have the same bits as those of two kernels. Activations are not joined with
    products: the library's ``relu`` turns NaN to zero, and its other functions have other last
    bits; but results must not depend on what is fetched and how tasks are divided.

    Args:
        steps: two steps, one after another.
        fetched: names whose values are fetched.
    """
    slots = _PAIRS.get(tuple(map(_type, steps)))  # type: ignore[arg-type]
    if slots is None:
        return False
    first, second = (step.node for step in steps)
    assert first.op is not None
    (name,) = first.op.outputs[slots[0]]
    result = next(var for var in first.outputs if var.kind == "var" and var.name == name)
    readers = [node for node in result.readers if not _reads_shape(node, name)]
    return readers == [second] and _is_only(second, slots[1], name) and name not in fetched


@dataclass(frozen=True)
class Pair:
    """Two operators, one of which is to do the work of both.

    Args:
        first: the operator that comes first.
        second: the operator that reads the first one's result.
        made: values for the output slots of the first.
        out: values for the output slots of the second.
        brought: values that come from outside of the code, by name.
    """

    first: Operator
    second: Operator
    made: list[Any]
    out: list[Any]
    brought: Brought


def emit_joined(operands: Operands, emit: Emit, pair: Pair) -> bool:
    """Emit the calls for a pair that :func:`joins` accepts.

    Args:
        operands: the values of their task.
        emit: :meth:`TaskCode.emit` of the task.
        pair: the operators.

    Returns:
        Whether calls were emitted: False if neither operator can do the work of both.
    """
    work = {"elementwise_add": _add_bias, "relu": _clip, "batch_norm_grad": _clip_gradient}
    return work[pair.second.type](operands, emit, pair)


def _add_bias(operands: Operands, emit: Emit, pair: Pair) -> bool:
    (plain,) = flat(pair.made)
    bias = operands.value(pair.second.inputs["Y"][0], pair.brought)
    if pair.second.attrs.get("axis", -1) not in (-1, len(plain.shape) - 1):
        return False
    inputs = operands.inputs(pair.first, pair.brought)
    return isinstance(bias, Value) and emit(pair.first, inputs, pair.out, bias=bias)


def _clip(operands: Operands, emit: Emit, pair: Pair) -> bool:
    inputs = operands.inputs(pair.first, pair.brought)
    return emit(pair.first, inputs, [*pair.out, *pair.made[1:]], relu=True)


def _clip_gradient(operands: Operands, emit: Emit, pair: Pair) -> bool:
    read = operands.inputs(pair.first, pair.brought)
    if read is None or any(value.dtype != "float32" for value in read):
        return False
    clipped, came = read
    (between,) = pair.first.outputs["X@GRAD"]
    inputs = operands.inputs(pair.second, pair.brought, {between: came})
    return emit(pair.second, inputs, pair.out, clipped=clipped)


def _type(step: Step) -> str:
    return step.node.op.type if step.node.op and step.node.does.computes else ""


def _reads_shape(node: OpNode, name: str) -> bool:
    if node.op is None or not _is_only(node, "X", name):
        return False
    definition = node.op.definition
    fused: list[str] = []
    # the forward operator of a fused gradient reads values, its gradient may read only the shape
    if definition.parts is not None and definition.forward is not None:
        fused = [f"{part.removesuffix('_grad')}_grad" for part in definition.parts(node.op)]
    found = (definition, *map(opdef.find, fused))
    return any(part is not None and "X" in part.shape_inputs for part in found)


def _is_only(node: OpNode, slot: str, name: str) -> bool:
    """Whether a node reads a variable only once, alone in a certain slot."""
    assert node.op is not None
    return node.op.inputs.get(slot) == [name] and node.op.input_arg_names.count(name) == 1
