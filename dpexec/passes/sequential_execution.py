"""``enable_sequential_execution``: the operators of a device follow the program's order."""

from __future__ import annotations

from itertools import pairwise

from dpexec.graph.ssa import SSAGraph

__all__ = ["SequentialExecution"]


class SequentialExecution:
    """Add a dependency between consecutive operators of each device that have none."""

    name = "enable_sequential_execution"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        before = len(graph.vars)
        for device in range(len(graph.places)):
            line = [node for node in graph.ops if node.device == device and not node.is_collective]
            for first, second in pairwise(line):
                if not any(first is node for node in graph.predecessors(second)):
                    graph.order(first, second)
        return len(graph.vars) > before
