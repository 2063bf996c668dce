"""What the live graph shows of a plan: a box per task, or per phase when there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.core.dtypes import to_numpy
from dpexec.dashboard.reports import Box
from dpexec.graph.describe import task_key

__all__ = ["MOST_BOXES", "boxes", "collective_bytes", "loss_names"]

MOST_BOXES = 80
"""A plan of more tasks is folded: what a lane does in one role becomes one box."""


def boxes(plan: Any, specs: Sequence[Mapping[str, Any]]) -> list[Box]:
    """The boxes of a plan, in an order in which they can run.

    Args:
        plan: a ``Plan``.
        specs: shapes and types of its variables, per device.

    Returns:
        The boxes.
    """
    fold = len(plan.tasks) > MOST_BOXES
    rows: dict[int, int] = {}
    found: dict[Any, list[Any]] = {}
    for task in plan.tasks:
        kind = _kind(task)
        before = [(rows[i], _kind(plan.tasks[i])) for i in task.after]
        rows[task.id] = max((row + (not fold or k != kind) for row, k in before), default=0)
        found.setdefault((rows[task.id], *kind) if fold else task.id, []).append(task)
    return [_box(tasks, rows[tasks[0].id], specs) for tasks in found.values()]


def _kind(task: Any) -> tuple[Any, ...]:
    """What tasks have in common that may be drawn as one."""
    return task.device, task.is_collective, *_roles(task)


def _roles(task: Any) -> list[str]:
    if task.is_collective:
        return ["collective"]
    found = dict.fromkeys(node.role for node in task.nodes)
    return [role for role in found if role != "lr_sched"] or ["lr_sched"]


def _box(tasks: list[Any], row: int, specs: Sequence[Mapping[str, Any]]) -> Box:
    first = tasks[0]
    roles = list(dict.fromkeys(role for task in tasks for role in _roles(task)))
    ops = Counter(node.name for task in tasks for node in task.nodes)
    label = first.nodes[0].kind.replace("_", "-") if first.is_collective else " + ".join(roles)
    return {
        "keys": [task_key(task) for task in tasks],
        "label": label.replace("lr_sched", "learning rate").replace("optimize", "update"),
        "device": first.device,
        "roles": roles,
        "row": row,
        "ops": ops.total(),
        "most": [f"{name} ×{count}" for name, count in ops.most_common(6)],
        "bytes": sum(collective_bytes(task.nodes, specs) for task in tasks),
    }


def collective_bytes(nodes: Sequence[Any], specs: Sequence[Mapping[str, Any]]) -> int:
    """How many bytes the collectives among some nodes read; sparse gradients count in full.

    Args:
        nodes: of a plan.
        specs: shapes and types of its variables, per device.
    """
    total = 0
    for node in nodes:
        if node.is_collective:
            for var in dict.fromkeys(node.inputs):
                spec = specs[var.device].get(var.name) if var.kind == "var" else None
                if spec is not None:
                    total += abs(spec.size) * to_numpy(spec.dtype).itemsize
    return total


def loss_names(plan: Any) -> set[str]:
    """The names of the losses whose gradients a plan starts from.

    Args:
        plan: a ``Plan``; without gradients it has none.
    """
    seeds = (node for node in plan.graph.ops if node.kind == "scale_loss_grad")
    return {var.name.removesuffix("@GRAD") for node in seeds for var in node.outputs}
