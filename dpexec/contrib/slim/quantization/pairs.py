"""``AddQuantDequantPass``: quantizes the inputs of operators without weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dpexec.contrib.slim.quantization.graphs import (
    Insertion,
    Listed,
    input_node,
    inputs_of,
    paired,
    reads_no_weight,
    skipped,
)
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.ir_graph import IrGraph
from dpexec.engine.graph.nodes import IrVarNode

__all__ = ["AddQuantDequantPass"]


class AddQuantDequantPass:
    """Inserts an operator that quantizes and dequantizes in front of operators' inputs.

    Args:
        scope: receives the persistent scales.
        place: device of the scales.
        moving_rate: decay of the moving averages.
        quant_bits: bits of the levels.
        skip_pattern: text, or list of texts; operators in name scopes that contain one are skipped.
        quantizable_op_type: types of operators to quantize.
        is_full_quantized: quantize all supported operators.

    Raises:
        AssertionError: an operator is not supported, or scope or place is missing.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import AddQuantDequantPass
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main), fluid.scope_guard(fluid.Scope()):
        ...     x = fluid.data("x", [None, 4])
        ...     out = fluid.layers.elementwise_add(x, fluid.layers.relu(x))
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        ...     where = fluid.global_scope(), fluid.CPUPlace()
        ...     adds = AddQuantDequantPass(*where, quantizable_op_type=["elementwise_add"])
        ...     _ = adds.apply(graph)
        >>> sum("moving_average" in op.name() for op in graph.all_op_nodes())  # both inputs
        2
    """

    _supported_quantizable_op_type: ClassVar = Listed(paired)
    _activation_type: ClassVar = ["relu", "relu6", "leaky_relu", "tanh", "swish"]  # PaddleSlim's

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        moving_rate: float = 0.9,
        quant_bits: int = 8,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("elementwise_add", "pool2d"),
        is_full_quantized: bool = False,
    ) -> None:
        for type in () if is_full_quantized else quantizable_op_type:
            if type not in paired():
                raise AssertionError(f"{type} is not supported for quantization.")
        if scope is None:
            raise AssertionError("scope must not be None.")
        if place is None:
            raise AssertionError("place must not be None.")
        self._scope, self._place = scope, place
        self._moving_rate, self._bits = moving_rate, quant_bits
        self._skip_pattern = skip_pattern
        self._types = paired() if is_full_quantized else list(quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a program, for testing or with gradients.

        Returns:
            The graph.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        insertion = Insertion(graph, self._scope, self._place)
        made: dict[str, IrVarNode] = {}  # what is read instead of a variable
        ops = graph.graph.ops
        for op in ops:
            taken = op.operator.attrs.get("quantization_type") == "qat_with_weight"
            if op.name() not in self._types or taken or skipped(op, self._skip_pattern):
                continue
            if not reads_no_weight(graph, op):
                continue
            op.set_attr("quantization_type", "qat_without_weight")
            op.set_attr("activation_bits", self._bits)
            for name in inputs_of(op.operator):
                node = input_node(graph, op, name)
                if name not in made:
                    made[name] = self._rounded(insertion, node)
                graph.update_input_link(node, made[name], op)
        gradients = [f"{type}_grad" for type in self._types]
        for op in ops:
            for node in op.inputs if op.name() in gradients else ():
                if node.name() in made and not node.is_ctrl_var():
                    graph.update_input_link(node, made[node.name()], op)
        graph.resolve_hazard()
        return graph

    def _rounded(self, insertion: Insertion, node: IrVarNode) -> IrVarNode:
        name, is_test = f"{node.name()}.quant_dequant", insertion.graph.is_test()
        made = insertion.new(node, name)
        before = insertion.kept(node, f"{name}.scale", 0.001)
        ins = {"X": node, "InScale": before}
        outs = {"Out": made, "OutScale": insertion.version(before)}
        if not is_test:
            more_ins, more_outs = insertion.moving(node, "quant_dequant.{}")
            ins, outs = ins | more_ins, outs | more_outs
        insertion.op(
            "fake_quantize_dequantize_moving_average_abs_max",
            ins,
            outs,
            bit_length=self._bits,
            moving_rate=self._moving_rate,
            is_test=is_test,
        )
        return made
