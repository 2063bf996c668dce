"""Groups of slices: by type of operator, by operator, layer, task or role."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

from dpexec.viz.measured.schedule import Schedule, Slice

By = Literal["type", "node", "layer", "task", "role"]

BETWEEN = "between operators"
"""The group of the time that tasks spend outside their operators."""


def namer(schedule: Schedule, by: By) -> Callable[[Slice], tuple[str, str]]:
    """Return a function from a slice to the name and role of its group.

    Args:
        schedule: The trace.
        by: The property that makes a group. A role is "" if members have different ones.

    Raises:
        ValueError: Layers are asked for, and the trace has no graph.
    """
    facts = schedule.facts
    if by == "layer" and facts is None:
        raise ValueError("the trace holds no graph, which would say what layer an operator is of")

    def name_of(piece: Slice) -> tuple[str, str]:
        event = piece.event
        if by == "task":
            return event.key, schedule.role_of(piece)
        if not piece.is_leaf_work:
            return BETWEEN, ""
        role = schedule.role_of(piece)
        if by == "role":
            return role, role
        node = schedule.node_of(piece)
        known = facts.by_id.get(node) if facts is not None and node is not None else None
        if by == "layer":
            return (known["layer"] if known else "") or event.name, ""
        if by == "node" and facts is not None and known is not None:
            return facts.label(known["id"]), role
        return event.name, role

    return name_of


def operator_of(schedule: Schedule, piece: Slice) -> Hashable:
    """Return an operator's identity, equal in every step and for its twins on other devices."""
    node = schedule.node_of(piece)
    if schedule.facts is None or node not in schedule.facts.by_id:
        return piece.event.kind, piece.event.name
    return schedule.facts.signatures[node]
