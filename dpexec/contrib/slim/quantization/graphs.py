"""Shared by the passes of quantization: inputs of operators, and quantizers put before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.ir_graph import IrGraph
from dpexec.engine.graph.nodes import IrOpNode, IrVarNode
from dpexec.engine.ir import roles
from dpexec.engine.ir.opdef import types_where
from dpexec.engine.ir.operator import Operator

__all__ = [
    "DEQUANTIZERS",
    "QUANTIZERS",
    "Insertion",
    "Listed",
    "input_node",
    "inputs_of",
    "load",
    "out_scaled",
    "output_node",
    "outputs_of",
    "paired",
    "reads_no_weight",
    "skipped",
    "weighted",
    "weights_of",
]

QUANTIZERS = frozenset(
    {"fake_quantize_abs_max", "fake_quantize_range_abs_max"}
    | {"fake_quantize_moving_average_abs_max", "fake_channel_wise_quantize_abs_max"}
)
DEQUANTIZERS = frozenset({"fake_dequantize_max_abs", "fake_channel_wise_dequantize_max_abs"})


def weighted() -> list[str]:
    """Operators whose weights can be quantized."""
    return types_where(lambda definition: "weights" in definition.quantized)


def paired() -> list[str]:
    """Operators whose inputs can be quantized and dequantized at once."""
    found = types_where(lambda definition: "inputs" in definition.quantized)
    return [*found, "argmax"]  # which Paddle names, though its operator is arg_max


class Listed:
    """An attribute of a class: types of operators, listed when they are asked for.

    Args:
        types: lists them.
    """

    def __init__(self, types: Callable[[], list[str]]) -> None:
        self._types = types

    def __get__(self, instance: Any, owner: type) -> list[str]:
        """The types."""
        return self._types()


def out_scaled(op: Operator) -> bool:
    """Whether engines want scales for the outputs of an operator."""
    return "outputs" in op.definition.quantized


def _named(slots: Mapping[str, list[str]], wanted: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for slot in wanted for name in slots.get(slot, [])))


def inputs_of(op: Operator) -> list[str]:
    """The variables with which an operator computes, without shapes, positions and statistics."""
    return _named(op.inputs, ("Input", "Filter", "X", "Y"))


def outputs_of(op: Operator) -> list[str]:
    """The variables with what an operator computes, without masks and statistics."""
    return _named(op.outputs, ("Output", "Out", "Y"))


def input_node(graph: IrGraph, op: IrOpNode, name: str) -> IrVarNode:
    """The version of a variable that an operator reads."""
    return graph._find_node_by_name(op.inputs, name)


def output_node(graph: IrGraph, op: IrOpNode, name: str) -> IrVarNode:
    """The version of a variable that an operator makes."""
    return graph._find_node_by_name(op.outputs, name)


def weights_of(graph: IrGraph) -> set[str]:
    """The names of all persistable variables."""
    return {node.name() for node in graph.all_persistable_nodes()}


def reads_no_weight(graph: IrGraph, op: IrOpNode) -> bool:
    """Whether nothing that an operator computes with is persistable."""
    nodes = (input_node(graph, op, name) for name in inputs_of(op.operator))
    return not any(node.persistable() for node in nodes)


def skipped(op: IrOpNode, pattern: str | Sequence[str]) -> bool:
    """Whether the user took an operator out, by the name scope that it was made in."""
    patterns = [pattern] if isinstance(pattern, str) else pattern
    scope = op.operator.attrs.get(roles.NAME_SCOPE, "")
    return any(part in scope for part in patterns)


def load(scope: Scope, name: str) -> np.ndarray[Any, Any]:
    """The value of a variable."""
    found = scope.find_var(name)
    if found is None:
        raise AssertionError(f"Cannot find {name} in scope.")
    return np.array(found.get_tensor())


@dataclass(frozen=True)
class Insertion:
    """Puts operators into a graph, and what they keep into a scope.

    Args:
        graph: it is changed.
        scope: gets the values of new persistable variables.
        place: where these lie.
    """

    graph: IrGraph
    scope: Scope | None
    place: Place | None

    def store(self, name: str, value: np.ndarray[Any, Any]) -> None:
        """Give a variable a value.

        Raises:
            AssertionError: scope or place is missing.
        """
        if self.scope is None:
            raise AssertionError("The scope cannot be set None.")
        if self.place is None:
            raise AssertionError("The place cannot be set None.")
        self.scope.var(name).get_tensor().set(value, self.place)

    def new(self, node: IrVarNode, name: str, shape: Sequence[int] | None = None) -> IrVarNode:
        """A variable like another one."""
        wanted = node.shape() if shape is None else shape
        return self.graph.create_var_node(name, node.type(), wanted, node.dtype())

    def kept(self, node: IrVarNode, name: str, value: Any) -> IrVarNode:
        """A persistable variable with numbers of the type that another one has.

        Args:
            node: the other one.
            name: of the new one.
            value: a number, or several.
        """
        numbers = np.array(value, to_numpy(node.dtype())).reshape(-1)
        self.store(name, numbers)
        kind, shape = VarType.LOD_TENSOR, list(numbers.shape)
        return self.graph.create_persistable_node(name, kind, shape, node.dtype())

    def version(self, node: IrVarNode) -> IrVarNode:
        """The next version of a variable."""
        return self.graph.create_var_node_from_desc(node.variable.desc)  # type: ignore[union-attr]

    def op(
        self,
        type: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        **attrs: Any,
    ) -> None:
        """An operator of the forward pass, with its links."""
        node = self.graph.create_op_node(
            type, {**attrs, roles.ROLE: roles.FORWARD}, inputs, outputs
        )
        for read in _flat(inputs):
            self.graph.link_to(read, node)
        for made in _flat(outputs):
            self.graph.link_to(node, made)

    def moving(
        self, node: IrVarNode, names: str
    ) -> tuple[dict[str, IrVarNode], dict[str, IrVarNode]]:
        """Slots for the mean of scales that goes on from step to step, of inputs and of outputs.

        Args:
            node: whose scale it is.
            names: of its variables, with ``{}`` for what they hold.
        """
        inputs, outputs = {}, {}
        for what in ("State", "Accum"):
            name = unique_name.generate(names.format(what.lower()))
            inputs["In" + what] = self.kept(node, name, 1.0)
            outputs["Out" + what] = self.version(inputs["In" + what])
        return inputs, outputs


def _flat(slots: Mapping[str, Any]) -> Iterator[IrVarNode]:
    for nodes in slots.values():
        yield from nodes if isinstance(nodes, list) else [nodes]
