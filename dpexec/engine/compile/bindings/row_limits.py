"""The most rows that the sparse values of a run have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.graph.ssa import OpNode, VarNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.sizes import at_most
from dpexec.engine.ir.spec import Spec

__all__ = ["row_limits", "sparse_reads"]


def row_limits(
    nodes: Iterable[OpNode],
    missing: Collection[VarNode],
    specs: Sequence[Mapping[str, Spec]],
    more: Mapping[str, int] = MappingProxyType({}),
) -> list[dict[str, int]]:
    """Follow sparse values through a plan.

    Args:
        nodes: what runs, in order.
        missing: variables without a value, on idle devices.
        specs: of every value of a run, per device.
        more: the most rows that other processes add to sums, by name.

    Returns:
        Per device, the most rows by name; values whose number of rows is unknown are left out.
        Devices may have different limits where sizes are open.
    """
    limits: list[dict[str, int]] = [{} for _ in specs]
    if not any(_is_sparse(spec) for known in specs for spec in known.values()):
        return limits
    for node in nodes:
        targets = [var for var in node.outputs if var.kind == "var" and var not in missing]
        if not any(_is_sparse(specs[var.device].get(var.name)) for var in targets):
            continue
        if node.is_collective:
            came = more if node.does.combines else {}
            _follow_collective(node, missing, targets, limits, came)
        elif node.op is not None and node.device is not None:
            rows = _rows_of(node.op, specs[node.device], limits[node.device])
            if rows is not None:
                limits[node.device].update((var.name, rows) for var in targets)
    return limits


def sparse_reads(
    nodes: Sequence[OpNode], missing: Collection[VarNode], specs: Sequence[Mapping[str, Spec]]
) -> dict[OpNode, int]:
    """The most bytes of sparse values that the sums of a plan read.

    Args:
        nodes: what runs, in order.
        missing: variables without a value, on idle devices.
        specs: of every value of a run, per device.

    Returns:
        The bytes on all devices, by node of the sum. Values whose number of rows is unknown count
        as if they had all rows of the table.
    """
    limits = row_limits(nodes, missing, specs)
    found: dict[OpNode, int] = {}
    for node in nodes:
        made = node.outputs if node.does.combines else ()
        by_name = {var.name: var for var in made if var.kind == "var" and var not in missing}
        for name, var in by_name.items():
            spec = specs[var.device][name]
            if _is_sparse(spec):
                rows = at_most(limits[var.device].get(name, spec.shape[0]))
                found[node] = found.get(node, 0) + rows * _row_bytes(spec)
    return found


def _row_bytes(spec: Spec) -> int:
    """The bytes of a row, with the number of the row."""
    return math.prod(spec.shape[1:]) * to_numpy(spec.dtype).itemsize + np.dtype(np.int64).itemsize


def _is_sparse(spec: Spec | None) -> bool:
    return spec is not None and spec.kind == VarType.SELECTED_ROWS


def _follow_collective(
    node: OpNode,
    missing: Collection[VarNode],
    targets: Sequence[VarNode],
    limits: Sequence[dict[str, int]],
    more: Mapping[str, int],
) -> None:
    """The sum has the rows of all devices, and those of other processes."""
    found: dict[str, list[int | None]] = {}
    for var in node.inputs:
        if var.kind == "var" and var not in missing:
            found.setdefault(var.name, []).append(limits[var.device].get(var.name))
    made_of = dict(zip(dict.fromkeys(var.name for var in targets), found.values(), strict=False))
    for var in targets:
        parts = made_of.get(var.name, [None])
        if None not in parts:
            rows = sum(at_most(part) for part in parts)
            limits[var.device][var.name] = rows + more.get(var.name, 0)
        else:
            limits[var.device].pop(var.name, None)


def _rows_of(op: Operator, specs: Mapping[str, Spec], limits: Mapping[str, int]) -> int | None:
    """The most rows of an operator's sparse results; None if unknown.

    The gradient of a lookup has a row for each id; other operators have the rows of all their
    sparse inputs together.
    """
    forward = op.definition.forward
    if forward is not None and forward.looks_up:
        shape = specs[op.inputs["Ids"][0]].shape
        return None if any(size < 0 for size in shape) else math.prod(shape)
    sparse = [name for name in op.input_arg_names if _is_sparse(specs.get(name))]
    if not sparse or any(name not in limits for name in sparse):
        return None
    return sum(limits[name] for name in sparse)
