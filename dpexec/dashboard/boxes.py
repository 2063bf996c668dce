"""The boxes of the live graph: one per task of a plan, or per phase if there are many tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from dpexec.dashboard.reports import Box
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.graph.describe import task_key

__all__ = ["MOST_BOXES", "boxes", "collective_bytes", "loss_names"]

_WORTH = 0.02
"""The least share of a task's operators for which a role is named."""

MOST_BOXES = 80
"""A plan with more tasks is folded: the tasks of a lane with the same role become one box."""


def boxes(binding: Any) -> list[Box]:
    """The boxes of a binding, in an order in which they can run.

    Args:
        binding: a ``Binding``.
    """
    plan = binding.plan
    fold = len(plan.tasks) > MOST_BOXES
    rows: dict[int, int] = {}
    found: dict[Any, list[Any]] = {}
    for task in plan.tasks:
        kind = _kind(task)
        before = [(rows[i], _kind(plan.tasks[i])) for i in task.after]
        rows[task.id] = max((row + (not fold or k != kind) for row, k in before), default=0)
        found.setdefault((rows[task.id], *kind) if fold else task.id, []).append(task)
    return [_box(tasks, rows[tasks[0].id], binding) for tasks in found.values()]


def _kind(task: Any) -> tuple[Any, ...]:
    """The properties that tasks must share to be drawn as one box."""
    return task.device, task.is_collective, *_roles(task)


def _roles(task: Any) -> list[str]:
    if task.is_collective:
        return ["collective"]
    found = dict.fromkeys(node.role for node in task.nodes)
    return [role for role in found if role != "lr_sched"] or ["lr_sched"]


def _largest_roles(tasks: list[Any]) -> dict[str, int]:
    """The number of operators of each role in tasks, without roles of hardly any operator."""
    known = dict.fromkeys(role for task in tasks for role in _roles(task))
    if tasks[0].is_collective:
        return dict.fromkeys(known, 1)
    found = Counter(node.role for task in tasks for node in task.nodes)
    least = _WORTH * sum(found[role] for role in known)
    return {role: found[role] for role in known if found[role] >= least}


def _box(tasks: list[Any], row: int, binding: Any) -> Box:
    first = tasks[0]
    roles = _largest_roles(tasks)
    ops = Counter(node.name for task in tasks for node in task.nodes)
    label = first.nodes[0].does.text if first.is_collective else " + ".join(roles)
    return {
        "keys": [task_key(task) for task in tasks],
        "label": label.replace("lr_sched", "learning rate").replace("optimize", "update"),
        "device": first.device,
        "roles": roles,
        "row": row,
        "ops": ops.total(),
        "most": [f"{name} ×{count}" for name, count in ops.most_common(6)],
        "bytes": sum(sum(collective_bytes(task.nodes, binding)) for task in tasks),
    }


def collective_bytes(nodes: Sequence[Any], binding: Any) -> tuple[int, int]:
    """The bytes that collectives read: of dense values, and at most of sparse values.

    Args:
        nodes: nodes of a plan.
        binding: the binding that runs.
    """
    dense = sparse = 0
    for node in nodes:
        if node.is_collective:
            sparse += binding.sparse_reads.get(node, 0)
            for var in dict.fromkeys(node.inputs):
                spec = binding.specs[var.device].get(var.name) if var.kind == "var" else None
                if spec is not None and spec.kind != VarType.SELECTED_ROWS:
                    dense += abs(spec.size) * to_numpy(spec.dtype).itemsize
    return dense, sparse


def loss_names(plan: Any) -> set[str]:
    """The names of the losses whose gradients a plan starts from.

    Args:
        plan: a ``Plan``; a plan without gradients has no losses.
    """
    seeds = (node for node in plan.graph.ops if node.does.seeds)
    return {var.name.removesuffix("@GRAD") for node in seeds for var in node.outputs}
