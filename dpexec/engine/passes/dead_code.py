"""``skip_dead_ops``: what nobody reads is not computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.engine.graph.operators import acts
from dpexec.engine.graph.ssa import OpNode, SSAGraph

__all__ = ["needed_nodes"]


def needed_nodes(graph: SSAGraph, nodes: Sequence[OpNode], fetch: Collection[str]) -> list[OpNode]:
    """The nodes that a run needs.

    They write a persistable variable or one that is fetched, do something besides (print, save,
    refuse values), or compute what one of these reads. What is fetched differs from run to run,
    so that this belongs to plans and not to the graph.

    Args:
        graph: the graph.
        nodes: nodes in a topological order.
        fetch: names of what is fetched.
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
