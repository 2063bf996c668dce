"""Collectives between the envs of one process.

Sums go in device order, ``((g0 + g1) + g2) + ...``, wherever they are computed, so the result has
the same bits in AllReduce and Reduce mode and on every scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.copies import value_on
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.places import CUDAPlace, Place, array_module, on_device
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.feeds.splitting import even_rows
from dpexec.engine.graph.ssa import OpNode, VarNode

__all__ = ["LEFT_OUT", "NodeSum", "bind_collective", "combined", "on_place", "sums_of"]

LEFT_OUT = object()
"""Stands for a value that a sum leaves out."""


class NodeSum(NamedTuple):
    """A sum of a collective; a single value is sent to others unchanged.

    Args:
        name: name of the values.
        sources: the devices that have a value, in order.
        made: name of the sum.
        targets: the devices that get it.
        reduction: how the values are combined.
    """

    name: str
    sources: list[int]
    made: str
    targets: list[int]
    reduction: Reduction


def bind_collective(
    node: OpNode, places: Sequence[Place], missing: set[VarNode]
) -> Callable[[Sequence[Env]], None]:
    """Bind a collective node to the devices that take part.

    Args:
        node: the collective.
        places: the devices.
        missing: variables without a value, of devices that are idle in this plan.
    """
    sources = _devices_of(node.inputs, missing)
    targets = _devices_of(node.outputs, missing)
    if node.does.moves_rows:
        return _BIND[node.does.effect](sources, targets, places)
    sums = sums_of(node, missing)
    buffers: dict[str, Any] = {}

    def call(envs: Sequence[Env]) -> None:
        for number, (name, devices, made, receivers, how) in enumerate(sums, node.id):
            home = places[receivers[number % len(receivers)]]  # GPUs share the work and the traffic
            found = [(envs[device][name], device) for device in devices]
            values = [on_place(v, places[at], home) for v, at in found if v is not LEFT_OUT]
            total = _combined_on(home, how, values, buffers.get(name))
            buffers[name] = total if len(values) > 1 else None
            if len(values) > 1 and isinstance(total, SelectedRows):
                envs[receivers[0]].joined[made] = total.row_array.nbytes + total.value.nbytes
            for target in receivers:
                envs[target][made] = on_place(total, home, places[target])

    return call


def _combined_on(home: Place, how: Reduction, values: list[Any], buffer: Any) -> Any:
    if not isinstance(home, CUDAPlace):
        return combined(how, values, np, buffer)
    with on_device(home):
        return combined(how, values, array_module(home), buffer)


def sums_of(node: OpNode, missing: set[VarNode]) -> list[NodeSum]:
    """The sums of a collective.

    Args:
        node: the collective.
        missing: variables without a value, on idle devices.
    """
    sources = _devices_of(node.inputs, missing)
    targets = _devices_of(node.outputs, missing)
    names = dict.fromkeys(var.name for var in node.inputs if var.kind == "var")
    made_of = dict(zip(names, targets, strict=True))
    return [
        NodeSum(name, found, made_of[name], targets[made_of[name]], node.does.reduction)
        for name, found in sources.items()
    ]


_Devices = dict[str, list[int]]


def _devices_of(variables: Sequence[VarNode], missing: set[VarNode]) -> _Devices:
    found: _Devices = {}
    for var in variables:
        if var.kind == "var" and var not in missing:
            found.setdefault(var.name, []).append(var.device)
    return found


def _bind_split(
    sources: _Devices, targets: _Devices, places: Sequence[Place]
) -> Callable[[Sequence[Env]], None]:
    """Rows for every device: as many as it has of another variable, or the same for all."""
    (name, (home,)), *others = sources.items()
    like = others[0][0] if others else ""
    ((made, devices),) = targets.items()

    def call(envs: Sequence[Env]) -> None:
        value = envs[home][name]
        if like:
            counts = [_rows(envs[device][like]) for device in devices]
        else:
            samples = value.sequences if isinstance(value, Lod) else len(value)
            counts = even_rows(samples, len(devices))
        first = 0
        for device, count in zip(devices, counts, strict=True):
            part = _part(value, first, count)
            envs[device][made] = on_place(part, places[home], places[device])
            first += count

    return call


def _rows(value: Any) -> int:
    """The number of rows of an array, or of the tensor that offsets belong to."""
    return value.rows if isinstance(value, Lod) else len(value)


def _part(value: Any, first: int, count: int) -> Any:
    """Some rows of an array, or the offsets of some sequences."""
    return value.part(first, count)[0] if isinstance(value, Lod) else value[first : first + count]


def _bind_merge(
    sources: _Devices, targets: _Devices, places: Sequence[Place]
) -> Callable[[Sequence[Env]], None]:
    ((name, devices),), ((made, (target,)),) = sources.items(), targets.items()
    home = places[target]

    def call(envs: Sequence[Env]) -> None:
        parts = [on_place(envs[device][name], places[device], home) for device in devices]
        if isinstance(parts[0], Lod):
            envs[target][made] = Lod.merged(parts)
            return
        with on_device(home):
            together = array_module(home).concatenate(parts) if len(parts) > 1 else parts[0]
        envs[target][made] = together

    return call


_BIND = {"splits": _bind_split, "joins": _bind_merge}
"""Functions that move rows, by effect."""


def combined(how: Reduction, values: list[Any], xp: Any = np, buffer: Any = None) -> Any:
    """One value of dense arrays, or the rows of all sparse ones one after another.

    Args:
        how: how dense values are combined.
        values: one per device, in device order.
        xp: ``numpy`` or ``cupy``.
        buffer: an array to put a dense result into, if it fits.
    """
    first = values[0]
    if len(values) == 1:
        return first
    if isinstance(first, SelectedRows):
        return SelectedRows(
            xp.concatenate([value.row_array for value in values]),
            first.height_,
            xp.concatenate([value.value for value in values]),
        )
    fits = isinstance(buffer, xp.ndarray) and (buffer.shape, buffer.dtype) == (
        first.shape,
        first.dtype,
    )
    return how.of(xp, values, buffer if fits else None)


def on_place(value: Any, source: Place, target: Place) -> Any:
    """A value of one device on another: the array itself on CPUs, which share memory.

    Args:
        value: the value of a variable.
        source: the device where it lies.
        target: the device to bring it to.
    """
    return value if source == target else value_on(target, value)
