"""Helpers for passes that merge several nodes into one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.graph.ssa import OpNode, SSAGraph

__all__ = ["merge", "mergeable", "merged_collective"]


@dataclass
class _Group:
    nodes: list[OpNode] = field(default_factory=list)
    first_reader: float = float("inf")

    def takes(self, node: OpNode) -> bool:
        """Whether no node before ``node`` needs a result of the group."""
        return node.id < self.first_reader

    def add(self, node: OpNode) -> None:
        readers = (reader.id for var in node.outputs for reader in var.readers)
        self.first_reader = min([self.first_reader, *readers])
        self.nodes.append(node)


def mergeable(keyed: Iterable[tuple[Hashable, OpNode]], least: int = 2) -> list[list[OpNode]]:
    """Groups of nodes that may run at the position of their last node.

    Args:
        keyed: nodes in the graph's order, each with a key. Only nodes with equal keys are grouped;
            a node with the key None stays alone.
        least: smallest group size; smaller groups are left out.
    """
    done: list[_Group] = []
    opened: dict[Hashable, _Group] = {}
    for key, node in keyed:
        if key is None:
            continue
        if key not in opened or not opened[key].takes(node):
            opened[key] = _Group()
            done.append(opened[key])
        opened[key].add(node)
    return [group.nodes for group in done if len(group.nodes) >= least]


def merge(graph: SSAGraph, merged: Iterable[tuple[list[OpNode], OpNode]]) -> bool:
    """Replace groups of nodes by single nodes, which take over the groups' edges.

    Args:
        graph: the graph.
        merged: pairs of a group, in order, and the node that replaces it, without edges so far.

    Returns:
        Whether there was any group.
    """
    gone: set[OpNode] = set()
    for group, node in merged:
        members = set(group)
        node.inputs = list(dict.fromkeys(var for old in group for var in old.inputs))
        for var in node.inputs:
            var.readers = list(dict.fromkeys(node if r in members else r for r in var.readers))
        node.outputs = [var for old in group for var in old.outputs]
        for var in node.outputs:
            var.writer = node
        graph.ops[group[-1].id] = node
        gone |= members
    graph.ops = [node for node in graph.ops if node not in gone]
    graph.renumber()
    return bool(gone)


def merged_collective(group: list[OpNode]) -> OpNode:
    """A collective that does the work of several.

    Args:
        group: collectives of the same kind, device and body.
    """
    last = group[-1]
    name = f"fused_{last.kind}"
    return OpNode(last.id, last.does, name, last.device, last.role, body=last.body)
