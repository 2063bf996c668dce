"""Changes made by a pass, found by comparing the operators before and after it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from dpexec.engine.graph.operators import Operators
from dpexec.engine.graph.ssa import OpNode, SSAGraph
from dpexec.engine.ir.operator import Operator

__all__ = ["changes", "label", "state"]

State = Mapping[Any, Hashable]
"""The operators in order, each with the properties that a pass may change in place."""


def state(subject: Operators | SSAGraph) -> State:
    """The operators before a pass."""
    return {item: _edges(item) for item in subject.ops}


def changes(
    before: State, subject: Operators | SSAGraph
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """The operators that a pass added, removed and changed.

    A new operator with the type and outputs of a removed one counts as changed.

    Args:
        before: the operators before the pass, see :func:`state`.
        subject: the operators after the pass.
    """
    present: dict[Operator | OpNode, None] = dict.fromkeys(subject.ops)
    gone = {label(item): item for item in before if item not in present}
    added, changed = [], []
    for item in present:
        text = label(item)
        if item in before:
            if before[item] != _edges(item):
                changed.append(text)
        elif gone.pop(text, None) is not None:
            changed.append(text)
        else:
            added.append(text)
    return tuple(added), tuple(gone), tuple(changed)


def label(item: Operator | OpNode) -> str:
    """An operator in one line: its type, its outputs and its device."""
    if isinstance(item, Operator):
        return _text(item.type, item.writes)
    names = [var.name for var in item.outputs if var.kind == "var"]
    where = "all devices" if item.device is None else f"device {item.device}"
    return f"{_text(item.name, names)} on {where}"


def _text(type: str, names: list[str]) -> str:
    return f"{type} -> {', '.join(dict.fromkeys(name for name in names if name))}"


def _edges(item: Operator | OpNode) -> Hashable:
    return None if isinstance(item, Operator) else (len(item.inputs), len(item.outputs))
