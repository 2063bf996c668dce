"""``fuse_all_reduce_ops``: one all-reduce for the gradients of a layer."""

from __future__ import annotations

from dpexec.graph.ssa import OpNode, SSAGraph
from dpexec.ir import roles

__all__ = ["FuseAllReduce"]


class FuseAllReduce:
    """Merge the all-reduces of parameters that share the name before the first dot.

    As in the original, weight and bias of one layer go together, gradients of different element
    types do not. The order of additions does not change, so neither do the bits.
    """

    name = "fuse_all_reduce_ops"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        groups: dict[tuple[str, object], list[OpNode]] = {}
        for node in graph.ops:
            if node.name == "all_reduce":
                grad = node.inputs[0].name
                dtype = graph.program.global_block().vars[grad].dtype
                layer = grad.removesuffix(roles.GRAD_SUFFIX).split(".")[0]
                groups.setdefault((layer, dtype), []).append(node)
        fusable = [group for group in groups.values() if _can_move_to_last(group)]
        gone: set[OpNode] = set()
        for group in fusable:
            graph.ops[group[-1].id] = _fused(group)
            gone.update(group)
        graph.ops = [node for node in graph.ops if node not in gone]
        graph.renumber()
        return bool(fusable)


def _can_move_to_last(group: list[OpNode]) -> bool:
    last = group[-1].id
    readers = (reader for node in group for var in node.outputs for reader in var.readers)
    return all(reader.id > last for reader in readers)


def _fused(group: list[OpNode]) -> OpNode:
    """One node that takes over the variables of all nodes of a group."""
    fused = OpNode(group[-1].id, "all_reduce", "fused_all_reduce", None, "collective")
    for node in group:
        for var in node.inputs:
            var.readers = [fused if reader is node else reader for reader in var.readers]
            fused.inputs.append(var)
        for var in node.outputs:
            var.writer = fused
            fused.outputs.append(var)
    return fused
