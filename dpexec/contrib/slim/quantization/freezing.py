"""Converting nets trained with quantizers to nets for engines with integer arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.contrib.slim.quantization.graphs import (
    DEQUANTIZERS,
    QUANTIZERS,
    Insertion,
    input_node,
    load,
    output_node,
    weights_of,
)
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.ir_graph import IrGraph
from dpexec.engine.graph.nodes import IrNode, IrOpNode, IrVarNode
from dpexec.engine.ops._quantization import largest_level

__all__ = ["ConvertToInt8Pass", "QuantizationFreezePass", "TransformForMobilePass"]


class QuantizationFreezePass:
    """Stores weights as levels, and moves dequantizers behind operators that compute with levels.

    Args:
        scope: holds the weights, and receives their levels.
        place: device of the new values.
        weight_bits: as given to the quantizers.
        activation_bits: as given to the quantizers.
        weight_quantize_type: as given to the quantizers.
        quantizable_op_type: ignored; all operators with quantizers are converted.

    Raises:
        AssertionError: scope or place is missing.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import (
        ...     QuantizationFreezePass,
        ...     QuantizationTransformPass,
        ... )
        >>> main, startup, place = fluid.Program(), fluid.Program(), fluid.CPUPlace()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     scope = fluid.global_scope()
        ...     _ = fluid.Executor(place).run(startup)
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        ...     _ = QuantizationTransformPass(scope, place).apply(graph)
        ...     _ = QuantizationFreezePass(scope, place).apply(graph)
        >>> [op.type for op in graph.to_program().global_block().ops]
        ['fake_quantize_abs_max', 'mul', 'fake_dequantize_max_abs', 'elementwise_add']
    """

    def __init__(
        self,
        scope: Scope,
        place: Place,
        weight_bits: int = 8,
        activation_bits: int = 8,
        weight_quantize_type: str = "abs_max",
        quantizable_op_type: Sequence[str] | None = None,
    ) -> None:
        if scope is None:
            raise AssertionError("The scope cannot be set None.")
        if place is None:
            raise AssertionError("The place cannot be set None.")
        self._scope, self._place = scope, place
        self._weight_bits, self._activation_bits = weight_bits, activation_bits
        self._weight_type = weight_quantize_type

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a program for testing, with quantizers.

        Returns:
            The graph.

        Raises:
            ValueError: a quantized operator has several outputs.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        _Freezing(self, graph).run()
        _remove_unused(graph)
        graph.resolve_hazard()
        return graph


class _Freezing:
    """One application of the pass.

    Args:
        rules: the pass.
        graph: the graph to change.
    """

    def __init__(self, rules: QuantizationFreezePass, graph: IrGraph) -> None:
        self.rules, self.graph = rules, graph
        self.insertion = Insertion(graph, rules._scope, rules._place)
        self.weights = weights_of(graph)
        self.sources: dict[IrNode, IrVarNode] = {}  # what stands for what a removed operator made
        self.scales: dict[IrNode, Any] = {}  # of weights numbers, of levels the node of their scale

    def run(self) -> None:
        for op in self.graph.graph.ops:
            if op.name() in QUANTIZERS:
                self._take_scale(op)
        for op in self.graph.graph.ops:
            if op.name() in DEQUANTIZERS:
                self._remove(op)
        ops, dequantized = self.graph.graph.ops, {}
        for op in ops:
            if op.operator.attrs.get("quantization_type") == "qat_with_weight":
                before, after = self._dequantize_after(op)
                dequantized[before] = after
        for op in ops:
            for node in op.inputs:
                if node in dequantized:
                    self.graph.update_input_link(node, dequantized[node], op)

    def _take_scale(self, op: IrOpNode) -> None:
        """Note a quantizer's scale; that of a weight has done its work then."""
        name = op.input("X")[0]
        if name not in self.weights:
            levels = output_node(self.graph, op, op.output("Out")[0])
            self.scales[levels] = output_node(self.graph, op, op.output("OutScale")[0])
            return
        value = load(self.rules._scope, name)
        kind = self.rules._weight_type
        if kind == "channel_wise_abs_max" and value.ndim == 4:
            scale = np.abs(value).max(axis=(1, 2, 3))
        elif kind in ("abs_max", "channel_wise_abs_max"):
            scale = np.abs(value).max()
        else:
            scale = load(self.rules._scope, op.output("OutScale")[0])[0]
        self.scales[input_node(self.graph, op, name)] = scale
        self._remove(op)
        self.insertion.store(name, levels_of(value, scale, self.rules._weight_bits))

    def _remove(self, op: IrOpNode) -> None:
        """Take a quantizer or dequantizer away: its input stands for its output."""
        made = output_node(self.graph, op, op.output("Out")[0])
        read = input_node(self.graph, op, op.input("X")[0])
        self.sources[made] = self.sources.get(read, read)
        self.graph.safe_remove_nodes(op)

    def _dequantize_after(self, op: IrOpNode) -> tuple[IrVarNode, IrVarNode]:
        """Let an operator compute with levels; its output, and what the others read instead."""
        weight_scale: Any = None
        for node in op.inputs:
            if node.is_ctrl_var():
                continue
            source = self.sources.get(node, node)
            if source is not node:
                self.graph.update_input_link(node, source, op)
            if source.name() in self.weights:
                weight_scale = self.scales[source]
            else:
                scale = self.scales[source]
        names = op.output_arg_names()
        if len(names) != 1:
            raise ValueError(f"Only support one output, but op {op.name()} has {names}.")
        made = output_node(self.graph, op, names[0])
        after = self.insertion.new(made, f"{made.name()}.dequantized")
        if np.ndim(weight_scale):
            self._by_channel(made, after, weight_scale, scale)
        else:
            largest: float = largest_level(self.rules._activation_bits)
            if weight_scale is not None:
                levels = largest_level(self.rules._weight_bits)
                largest *= levels / float(weight_scale) if weight_scale else math.inf
            ins, outs = {"X": made, "Scale": scale}, {"Out": after}
            self.insertion.op("fake_dequantize_max_abs", ins, outs, max_range=float(largest))
        return made, after

    def _by_channel(
        self, made: IrVarNode, after: IrVarNode, weight_scale: Any, scale: IrVarNode
    ) -> None:
        name = unique_name.generate("channel_scale")
        kept = self.insertion.kept(made, name, weight_scale)
        self.insertion.op(
            "fake_channel_wise_dequantize_max_abs",
            {"X": made, "Scales": [kept, scale]},
            {"Out": after},
            quant_bits=[self.rules._weight_bits, self.rules._activation_bits],
        )


def levels_of(value: Any, scale: Any, bits: int) -> Any:
    """The levels of weights, for one scale or one per channel; weights that are all 0 stay so."""
    scales = np.asarray(scale, value.dtype).reshape(-1, *(1,) * (value.ndim - 1))
    return np.round(value / np.where(scales > 0, scales, 1) * value.dtype.type(largest_level(bits)))


def _remove_unused(graph: IrGraph) -> None:
    """Remove variables that no operator reads or writes."""
    used = {node for op in graph.graph.ops for node in (*op.inputs, *op.outputs)}
    graph.safe_remove_nodes(graph.all_var_nodes() - used)


class ConvertToInt8Pass:
    """Stores the levels of weights as bytes, as ``<weight>.int8``.

    Args:
        scope: holds the levels, and receives the bytes.
        place: device of the new values.
        quantizable_op_type: ignored; all operators with quantizers are converted.

    Raises:
        AssertionError: scope or place is missing.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import (
        ...     ConvertToInt8Pass,
        ...     QuantizationFreezePass,
        ...     QuantizationTransformPass,
        ... )
        >>> main, startup, place = fluid.Program(), fluid.Program(), fluid.CPUPlace()
        >>> with fluid.program_guard(main, startup), fluid.unique_name.guard():
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     scope = fluid.global_scope()
        ...     _ = fluid.Executor(place).run(startup)
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        ...     _ = QuantizationTransformPass(scope, place).apply(graph)
        ...     for step in QuantizationFreezePass(scope, place), ConvertToInt8Pass(scope, place):
        ...         _ = step.apply(graph)
        ...     scope.find_var("fc_0.w_0.int8").get_tensor().numpy().dtype
        dtype('int8')
    """

    def __init__(
        self, scope: Scope, place: Place, quantizable_op_type: Sequence[str] | None = None
    ) -> None:
        if scope is None:
            raise AssertionError("The scope cannot be set None.")
        if place is None:
            raise AssertionError("The place cannot be set None.")
        self._scope, self._place = scope, place

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a frozen program. The result is for other engines; dpexec does not run
                it.

        Returns:
            The graph.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        insertion = Insertion(graph, self._scope, self._place)
        weights, made = weights_of(graph), {}
        for op in graph.graph.ops:
            if op.operator.attrs.get("quantization_type") != "qat_with_weight":
                continue
            for node in op.inputs:
                name = node.name()
                if name in weights:
                    if name not in made:
                        made[name] = graph.create_persistable_node(
                            f"{name}.int8", node.type(), node.shape(), VarType.INT8
                        )
                        insertion.store(f"{name}.int8", load(self._scope, name).astype(np.int8))
                    graph.update_input_link(node, made[name], op)
        _remove_unused(graph)
        graph.resolve_hazard()
        return graph


class TransformForMobilePass:
    """Renames quantizers and dequantizers to paddle-mobile's names.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim import quantization
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        ...     where = fluid.global_scope(), exe.place
        ...     _ = quantization.QuantizationTransformPass(*where).apply(graph)
        ...     _ = quantization.TransformForMobilePass().apply(graph)
        >>> sorted({op.name() for op in graph.all_op_nodes()})
        ['dequantize', 'elementwise_add', 'mul', 'quantize']
    """

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a frozen program. The result can be saved; dpexec does not run it.

        Returns:
            The graph.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        for op in graph.graph.ops:
            kind = op.name()
            if kind in QUANTIZERS or kind in DEQUANTIZERS:
                op.set_type("quantize" if kind in QUANTIZERS else "dequantize")
                twin = graph.create_op_node_from_desc(op.op())
                for node in op.inputs:
                    graph.link_to(node, twin)
                for node in op.outputs:
                    graph.link_to(twin, node)
                graph.safe_remove_nodes(op)
        graph.resolve_hazard()
        return graph
