"""Scales of operators' outputs, which engines for prediction need."""

from __future__ import annotations

from dpexec.contrib.slim.quantization.graphs import (
    Insertion,
    load,
    out_scaled,
    output_node,
    outputs_of,
)
from dpexec.engine.core.places import Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.graph.ir_graph import IrGraph

__all__ = ["OutScaleForInferencePass", "OutScaleForTrainingPass"]


class OutScaleForTrainingPass:
    """Makes training record the scales of outputs: moving averages of their largest magnitudes.

    Args:
        scope: receives the scales.
        place: device of the scales.
        moving_rate: decay of the moving averages.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.contrib.slim.quantization import OutScaleForTrainingPass
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main), fluid.scope_guard(fluid.Scope()):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=False)
        ...     _ = OutScaleForTrainingPass(fluid.global_scope(), fluid.CPUPlace()).apply(graph)
        >>> sorted(op.name() for op in graph.all_op_nodes())
        ['moving_average_abs_max_scale', 'relu']
    """

    def __init__(
        self, scope: Scope | None = None, place: Place | None = None, moving_rate: float = 0.9
    ) -> None:
        self._scope, self._place, self._moving_rate = scope, place, moving_rate

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a program, for testing or with gradients.

        Returns:
            The graph.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        insertion, is_test = Insertion(graph, self._scope, self._place), graph.is_test()
        for op in graph.graph.ops:
            for name in outputs_of(op.operator) if out_scaled(op.operator) else ():
                node = output_node(graph, op, name)
                scale = insertion.kept(node, f"{name}@scale", 1.0)
                ins, outs = {"X": node}, {"Out": insertion.version(node), "OutScale": scale}
                if not is_test:
                    more_ins, more_outs = insertion.moving(node, "scale_{}@")
                    ins, outs = ins | more_ins, outs | more_outs
                insertion.op(
                    "moving_average_abs_max_scale",
                    ins,
                    outs,
                    moving_rate=self._moving_rate,
                    is_test=is_test,
                )
        graph.resolve_hazard()
        return graph


class OutScaleForInferencePass:
    """Writes the scales that training found into the attribute ``out_threshold`` of operators.

    Args:
        scope: holds the scales.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> from dpexec.contrib.slim.quantization import (
        ...     OutScaleForInferencePass,
        ...     OutScaleForTrainingPass,
        ... )
        >>> main, startup, place = fluid.Program(), fluid.Program(), fluid.CPUPlace()
        >>> with fluid.program_guard(main, startup):
        ...     out = fluid.layers.relu(fluid.data("x", [None, 4]))
        >>> with fluid.scope_guard(fluid.Scope()):
        ...     scope, exe = fluid.global_scope(), fluid.Executor(place)
        ...     graph = fluid.framework.IrGraph(fluid.core.Graph(main.desc), for_test=False)
        ...     _ = OutScaleForTrainingPass(scope, place).apply(graph)
        ...     feed = {"x": np.full([1, 4], 3, "float32")}
        ...     _ = exe.run(graph.to_program(), feed, [out.name])
        ...     _ = OutScaleForInferencePass(scope).apply(graph)
        >>> found = graph.to_program().global_block().ops[0].attr("out_threshold")
        >>> round(found, 2)  # a moving average, on its way to 3
        2.05
    """

    def __init__(self, scope: Scope | None = None) -> None:
        self._scope = scope

    def apply(self, graph: IrGraph) -> IrGraph:
        """Change a graph.

        Args:
            graph: graph of a program for testing.

        Returns:
            The graph.

        Raises:
            AssertionError: an operator has several outputs, or an output has no scale.
        """
        if not isinstance(graph, IrGraph):
            raise AssertionError("graph must be the instance of IrGraph.")
        if self._scope is None:
            raise AssertionError("The scope cannot be set None.")
        for op in graph.graph.ops:
            if out_scaled(op.operator):
                names = outputs_of(op.operator)
                if len(names) != 1:
                    raise AssertionError(f"{op.name()} must have one output, but has {names}")
                scale = load(self._scope, f"{names[0]}@scale")
                op.set_attr("out_threshold", float(scale[0]))
        graph.resolve_hazard()
        return graph
