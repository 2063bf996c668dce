"""``skip_dead_ops``: operators whose results are not used do not run."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.engine.graph.operators import acts
from dpexec.engine.graph.ssa import OpNode, SSAGraph

__all__ = ["needed_nodes"]


def needed_nodes(graph: SSAGraph, nodes: Sequence[OpNode], fetch: Collection[str]) -> list[OpNode]:
    """The nodes that a run needs.

    A node is needed if it writes a persistable or fetched variable, has a side effect (prints,
    saves, checks values), or computes an input of a needed node. Fetches differ from run to run, so
    this is decided per plan and the graph keeps all nodes.

    Args:
        graph: the graph.
        nodes: nodes in a topological order.
        fetch: names of fetched variables.
    """
    variables = graph.program.global_block().vars
    needed: set[OpNode] = set()
    kept = []
    for node in reversed(nodes):
        if (
            node in needed
            or _matters(node)
            or any(
                var.name in fetch or (var.name in variables and variables[var.name].persistable)
                for var in node.outputs
            )
        ):
            needed.update(
                var.writer for var in node.inputs if var.kind == "var" and var.writer is not None
            )
            kept.append(node)
    return kept[::-1]


def _matters(node: OpNode) -> bool:
    return node.op is not None and node.does.computes and acts(node.op)
