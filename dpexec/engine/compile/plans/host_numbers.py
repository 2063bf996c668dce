"""Operators whose numbers only determine shapes and positions: the host computes them.

``layers.shape`` and ``fill_constant`` give numbers that programs compute sizes from, for
``reshape``, ``range``, ``expand`` and so on; loops count their rounds, and find entries of arrays
by these numbers. The host knows them when it enqueues the operators; computed on the GPU they would
make it wait for all that was enqueued before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from dpexec.engine.core.places import CUDAPlace, Place, array_module
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.roles import present
from dpexec.engine.kernels.gpu.products import PRODUCTS, products

__all__ = ["modules_of", "on_host"]


def on_host(nodes: Iterable[OpNode], kept: Collection[str]) -> frozenset[Operator]:
    """The operators that compute only such numbers; all readers need them on the host.

    Args:
        nodes: the nodes that run.
        kept: names of variables that are read after the run.
    """
    single = {node.op: None for node in nodes if node.op is not None and not node.is_collective}
    ops = list(dict.fromkeys(inner for op in single for inner in op.with_inner()))
    used = {var.name for node in nodes if node.op not in single for var in node.inputs}
    found = {op for op in ops if op.definition.makes_numbers}
    while found:
        on_gpu = {*kept, *used}.union(*(_on_gpu(op) for op in ops if op not in found))
        made = {name for op in found for name in op.output_arg_names} - on_gpu
        staying = {op for op in found if _stays(op, made)}
        if staying == found:
            break
        found = staying
    return frozenset(found)


def _on_gpu(op: Operator) -> set[str]:
    """The variables that an operator reads or writes on the GPU."""
    if op.definition.hands_on:
        given, wanted = op.inputs.get("X", []), op.outputs.get("X@GRAD", [])
        differentiated = {n for n, grad in zip(given, wanted, strict=False) if present([grad])}
        return differentiated.union(*(n for slot, n in op.inputs.items() if "@GRAD" in slot))
    known = op.definition.host_inputs
    read = (names for slot, names in op.inputs.items() if slot not in known)
    return {*op.output_arg_names}.union(*read)


def _stays(op: Operator, made: Collection[str]) -> bool:
    """Whether an operator reads and writes only numbers on the host."""
    form = op.definition.shape_inputs
    given = (name for slot, names in op.inputs.items() if slot not in form for name in names)
    return all(name in made for name in (*given, *op.output_arg_names))


def modules_of(
    place: Place, numbers: Collection[Operator], rounding: str | None
) -> Callable[[Operator], Any]:
    """A function that gives the array library of an operator on a device.

    Args:
        place: the device.
        numbers: operators that the host computes.
        rounding: the type to which GPUs round what they multiply; None: as it is.
    """
    if not isinstance(place, CUDAPlace):
        return lambda op: np
    xp = array_module(place)
    exact, rounded = products(xp), products(xp, rounding or "float32")

    def module_of(op: Operator) -> Any:
        if op in numbers:
            return np
        return rounded if op.type in PRODUCTS else exact

    return module_of
