"""``fuse_all_reduce_ops``: one all-reduce for the gradients of a layer."""

from __future__ import annotations

from collections.abc import Hashable

from dpexec.graph.ssa import OpNode, SSAGraph
from dpexec.ir import roles
from dpexec.passes.merging import merge, mergeable

__all__ = ["FuseAllReduce"]


class FuseAllReduce:
    """Merge the all-reduces of parameters that share the name before the first dot.

    As in the original, weight and bias of one layer go together, gradients of different element
    types do not. The order of additions does not change, so neither do the bits.
    """

    name = "fuse_all_reduce_ops"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        variables = graph.program.global_block().vars

        def layer(node: OpNode) -> Hashable:
            if node.name != "all_reduce":
                return None
            grad = node.inputs[0].name
            return grad.removesuffix(roles.GRAD_SUFFIX).split(".")[0], variables[grad].dtype

        groups = mergeable(((layer(node), node) for node in graph.ops), least=1)
        return merge(graph, ((group, _fused(group)) for group in groups))


def _fused(group: list[OpNode]) -> OpNode:
    return OpNode(group[-1].id, "all_reduce", "fused_all_reduce", None, "collective")
