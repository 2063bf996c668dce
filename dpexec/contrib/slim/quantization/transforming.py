"""``QuantizationTransformPass``: training or prediction with quantized weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dpexec.contrib.slim.quantization.graphs import (
    Insertion,
    Listed,
    reads_no_weight,
    skipped,
    weighted,
    weights_of,
)
from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.ir_graph import IrGraph
from dpexec.engine.graph.nodes import IrOpNode, IrVarNode
from dpexec.engine.ops._quantization import largest_level

__all__ = ["QuantizationTransformPass"]

_COUNTER = "@STEP_COUNTER@"
_TYPES = ("abs_max", "channel_wise_abs_max", "range_abs_max", "moving_average_abs_max")
Function = Callable[[Any], Any]


class QuantizationTransformPass:
    """Inserts a quantizer and a dequantizer in front of the inputs of operators with weights.

    Gradient operators then read the dequantized values, too; their gradients are applied to the
    original weights, ignoring the rounding (straight-through estimator).

    Args:
        scope: receives the persistent scales.
        place: device of the scales.
        weight_bits: bits of the weights' levels, from 1 to 16.
        activation_bits: bits of the other inputs' levels.
        activation_quantize_type: source of the other inputs' scales: ``abs_max`` is the largest
            magnitude of a batch, ``range_abs_max`` that of the latest batches,
            ``moving_average_abs_max`` a moving average.
        weight_quantize_type: the same for weights, or ``channel_wise_abs_max``: a scale for each
            output channel of a convolution.
        window_size: number of batches for ``range_abs_max``.
        moving_rate: decay of the moving averages.
        skip_pattern: text, or list of texts; operators in name scopes that contain one are skipped.
        quantizable_op_type: the operators to quantize, of ``conv2d``, ``depthwise_conv2d``, ``mul``
            and ``matmul``.
        weight_quantize_func: not supported.
        act_quantize_func: not supported.
        weight_preprocess_func: not supported.
        act_preprocess_func: not supported.
        optimizer_func: ignored; belongs to the unsupported functions.
        executor: ignored; belongs to the unsupported functions.

    Raises:
        AssertionError: an operator or type is not supported.
        NotImplementedError: one of the unsupported functions is given.
        ValueError: a quantize type is unknown.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import QuantizationTransformPass
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     out = fluid.layers.fc(fluid.data("x", [None, 4]), 2)
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = exe.run(startup)
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=True)
        ...     _ = QuantizationTransformPass(fluid.global_scope(), exe.place).apply(graph)
        >>> sum(op.name() == "fake_quantize_abs_max" for op in graph.all_op_nodes())  # of x and w
        2
    """

    _supported_quantizable_op_type: ClassVar = Listed(weighted)

    def __init__(
        self,
        scope: Scope | None = None,
        place: Place | None = None,
        weight_bits: int = 8,
        activation_bits: int = 8,
        activation_quantize_type: str = "abs_max",
        weight_quantize_type: str = "abs_max",
        window_size: int = 10000,
        moving_rate: float = 0.9,
        skip_pattern: str | Sequence[str] = ("skip_quant",),
        quantizable_op_type: Sequence[str] = ("conv2d", "depthwise_conv2d", "mul"),
        weight_quantize_func: Function | None = None,
        act_quantize_func: Function | None = None,
        weight_preprocess_func: Function | None = None,
        act_preprocess_func: Function | None = None,
        optimizer_func: Callable[[], Any] | None = None,
        executor: Any = None,
    ) -> None:
        if activation_quantize_type == "channel_wise_abs_max":
            raise AssertionError(
                "The activation quantization type does not support 'channel_wise_abs_max'."
            )
        for what, kind in (
            ("activation_quantize_type", activation_quantize_type),
            ("weight_quantize_type", weight_quantize_type),
        ):
            if kind not in _TYPES:
                raise ValueError(f"Unknown {what}: '{kind}'. It can only be one of {_TYPES}.")
        own = (weight_quantize_func, act_quantize_func, weight_preprocess_func, act_preprocess_func)
        if any(function is not None for function in own):
            raise NotImplementedError(
                "QuantizationTransformPass of dpexec takes no functions of one's own: "
                "weight_quantize_func, act_quantize_func, weight_preprocess_func and "
                "act_preprocess_func must be None"
            )
        for op in quantizable_op_type:
            if op not in weighted():
                raise AssertionError(f"{op} is not supported for quantization.")
        self._scope, self._place = scope, place
        self._bits = {True: weight_bits, False: activation_bits}
        self._kinds = {True: weight_quantize_type, False: activation_quantize_type}
        self._window_size, self._moving_rate = window_size, moving_rate
        self._skip_pattern = skip_pattern
        self._types = list(quantizable_op_type)

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a program, for testing or with gradients.

        Returns:
            The graph.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        _Transformation(self, graph).run()
        graph.resolve_hazard()
        return graph


class _Transformation:
    """One application of the pass.

    Args:
        rules: the pass.
        graph: the graph to change.
    """

    def __init__(self, rules: QuantizationTransformPass, graph: IrGraph) -> None:
        self.rules, self.graph = rules, graph
        self.insertion = Insertion(graph, rules._scope, rules._place)
        self.weights = weights_of(graph)
        self.made: dict[str, IrVarNode] = {}  # what is read instead of a variable
        self.step: IrVarNode | None = None

    def run(self) -> None:
        if not self.graph.is_test() and "range_abs_max" in self.rules._kinds.values():
            self.step = self._counter()
        ops = self.graph.graph.ops
        gradients = [f"{type}_grad" for type in self.rules._types]
        for op in ops:
            known = op.name() in self.rules._types or op.name() in gradients
            if known and skipped(op, self.rules._skip_pattern):
                op.set_attr("skip_quant", 1)  # a number in the original, too
        for op in ops:
            if op.name() in self.rules._types and not self._is_left(op):
                op.set_attr("quantization_type", "qat_with_weight")
                for node in op.inputs:
                    if not node.is_ctrl_var():
                        self._quantize(op, node)
        for op in ops:
            if op.name() in gradients:
                for node in op.inputs:
                    if node.name() in self.made and not node.is_ctrl_var():
                        self.graph.update_input_link(node, self.made[node.name()], op)

    def _is_left(self, op: IrOpNode) -> bool:
        attrs = op.operator.attrs
        return bool(
            attrs.get("skip_quant")
            or attrs.get("quantization_type") == "qat_without_weight"
            or ("Y" in op.operator.inputs and reads_no_weight(self.graph, op))
        )

    def _counter(self) -> IrVarNode:
        """The number of the step: a counter that the program has, or a new one."""
        found = [node for node in self.graph.graph.vars if node.name() == _COUNTER]
        if found:
            return found[-1]
        self.insertion.store(_COUNTER, np.zeros(1, np.int64))
        before = self.graph.create_persistable_node(
            _COUNTER, VarType.LOD_TENSOR, [1], VarType.INT64
        )
        after = self.insertion.version(before)
        self.insertion.op("increment", {"X": before}, {"Out": after}, step=1.0)
        return after

    def _quantize(self, op: IrOpNode, node: IrVarNode) -> None:
        """Make an operator read a variable's dequantized levels."""
        name, rules = node.name(), self.rules
        if name not in self.made:
            is_weight = name in self.weights
            bits, kind = rules._bits[is_weight], rules._kinds[is_weight]
            if kind == "channel_wise_abs_max" and "Filter" in op.operator.inputs:
                self.made[name] = self._by_channel(node, name, bits)
            else:
                self.made[name] = self._by_number(node, name, bits, kind)
        self.graph.update_input_link(node, self.made[name], op)

    def _by_channel(self, node: IrVarNode, name: str, bits: int) -> IrVarNode:
        insertion, type = self.insertion, "fake_channel_wise_{}"
        levels = insertion.new(node, f"{name}.quantized")
        scale = insertion.new(node, f"{name}.scale", node.shape()[:1])
        made = insertion.new(node, f"{levels.name()}.dequantized")
        outs = {"Out": levels, "OutScale": scale}
        insertion.op(type.format("quantize_abs_max"), {"X": node}, outs, bit_length=bits)
        ins = {"X": levels, "Scales": [scale]}
        insertion.op(type.format("dequantize_max_abs"), ins, {"Out": made}, quant_bits=[bits])
        return made

    def _by_number(self, node: IrVarNode, name: str, bits: int, kind: str) -> IrVarNode:
        insertion = self.insertion
        levels = insertion.new(node, f"{name}.quantized")
        made = insertion.new(node, f"{levels.name()}.dequantized")
        if kind == "range_abs_max":
            scale = self._by_range(node, name, levels, bits)
        elif kind == "moving_average_abs_max":
            scale = self._by_mean(node, name, levels, bits)
        else:
            scale = insertion.new(node, f"{name}.scale", [1])
            outs = {"Out": levels, "OutScale": scale}
            insertion.op("fake_quantize_abs_max", {"X": node}, outs, bit_length=bits)
        largest = float(largest_level(bits))
        ins = {"X": levels, "Scale": scale}
        insertion.op("fake_dequantize_max_abs", ins, {"Out": made}, max_range=largest)
        return made

    def _by_range(self, node: IrVarNode, name: str, levels: IrVarNode, bits: int) -> IrVarNode:
        insertion, size = self.insertion, self.rules._window_size
        before = insertion.kept(node, f"{name}.scale", 0.001)
        scale = insertion.version(before)
        ins, outs = {"X": node, "InScale": before}, {"Out": levels, "OutScale": scale}
        if self.step is not None:
            window = insertion.kept(node, unique_name.generate("scales"), [0.0] * size)
            ins["Iter"], outs["OutScales"] = self.step, window
        insertion.op(
            "fake_quantize_range_abs_max",
            ins,
            outs,
            window_size=size,
            bit_length=bits,
            is_test=self.graph.is_test(),
        )
        return scale

    def _by_mean(self, node: IrVarNode, name: str, levels: IrVarNode, bits: int) -> IrVarNode:
        insertion = self.insertion
        before = insertion.kept(node, f"{name}.scale", 0.001)
        scale = insertion.version(before)
        ins, outs = {"X": node, "InScale": before}, {"Out": levels, "OutScale": scale}
        if not self.graph.is_test():
            more_ins, more_outs = insertion.moving(node, "{}")
            ins, outs = ins | more_ins, outs | more_outs
        insertion.op(
            "fake_quantize_moving_average_abs_max",
            ins,
            outs,
            bit_length=bits,
            moving_rate=self.rules._moving_rate,
            is_test=self.graph.is_test(),
        )
        return scale
