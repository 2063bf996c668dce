"""``enable_sequential_execution``: the operators of a device follow the program's order."""

from __future__ import annotations

import itertools

from dpexec.engine.graph.ssa import SSAGraph

__all__ = ["SequentialExecution"]


class SequentialExecution:
    """Add a control variable between consecutive operators of each device.

    As in Paddle, Scale LossGrad gets no inputs; its reader waits for it anyway.
    """

    name = "enable_sequential_execution"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        numbers = itertools.count(len({var.name for var in graph.vars if var.kind == "control"}))
        before = len(graph.vars)
        for device in range(len(graph.places)):
            line = [node for node in graph.ops if node.device == device and not node.is_collective]
            for first, second in itertools.pairwise(line):
                name = f"__control_var@{next(numbers)}"
                if not first.does.seeds:
                    graph.write(first, name, device, "control")
                if not second.does.seeds:
                    graph.read(second, name, device, "control")
        return len(graph.vars) > before
