"""Own state: persistable variables that differ from replica to replica.

Parameters that every replica updates from the same summed gradients are equal everywhere, and any
replica can give them to a replica that was lost. Own state is the rest: moments of an optimizer
that only the owner of a parameter runs, statistics of a replica's own samples, and the like.
"""

from __future__ import annotations

from dpexec.engine.graph.ssa import OpNode, SSAGraph, VarNode

__all__ = ["own_names"]


def own_names(graph: SSAGraph) -> list[frozenset[str]]:
    """The persistable variables of each device that no other replica could give it.

    A variable is common if every replica has it, and computes it only from gradients summed over
    all replicas, values broadcast to all, and other common variables. Variables that are equal for
    other reasons count as own state, which costs a little but is never wrong.

    Args:
        graph: the graph of the replicas.

    Returns:
        Names, per device.
    """
    declared = graph.program.global_block().vars
    held = [
        {name for name in names if name in declared and declared[name].persistable}
        for names in graph.versions
    ]
    common: set[str] = set.intersection(*(held[device] for device in graph.replicas))
    while True:
        equal = _equal_values(graph, common)
        left = {
            name
            for name in common
            if all(graph.latest(name, device) in equal for device in graph.replicas)
        }
        if left == common:
            break
        common = left
    return [
        frozenset(names - common) if device in graph.replicas else frozenset(names)
        for device, names in enumerate(held)
    ]


def _equal_values(graph: SSAGraph, common: set[str]) -> set[VarNode]:
    """The values that are equal on all replicas, if some variables are equal at the start."""
    equal = {var for var in graph.vars if var.writer is None and var.name in common}
    for node in graph.ops:
        if node.does.copies:
            equal.update(node.inputs)
        if node.does.result == "all" or _is_function(node, equal):
            equal.update(node.outputs)
    return equal


def _is_function(node: OpNode, equal: set[VarNode]) -> bool:
    """Whether a node has equal inputs on all replicas, and computes equal results of them."""
    if not node.does.computes or node.op is None:
        return False
    for op in node.op.with_inner():
        definition = op.definition
        if definition.is_random or "share" in definition.kernel_arguments:
            return False
    return all(var in equal for var in node.inputs if var.kind == "var")
