"""``fuse_broadcast_ops``: one broadcast for the variables that a device sends to others."""

from __future__ import annotations

from collections.abc import Hashable

from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.passes.merging import merge, mergeable, merged_collective

__all__ = ["FuseBroadcast"]


class FuseBroadcast:
    """Merge broadcasts with the same source device and the same target devices.

    In Reduce mode, if devices do not share memory, an owner broadcasts its updated parameters.
    """

    name = "fuse_broadcast_ops"

    def apply(self, graph: SSAGraph) -> bool:
        """Rewrite ``graph``; tell whether anything changed."""
        groups = mergeable((_way(node), node) for node in graph.ops)
        return merge(graph, ((group, merged_collective(group)) for group in groups))


def _way(node: OpNode) -> Hashable:
    if not node.does.copies:
        return None
    targets = (var.device for var in node.outputs if var.kind == "var")
    return node.does, node.device, node.body, tuple(targets)
