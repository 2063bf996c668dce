"""Which values of a step take memory, from which operator until which operator.

This is not recorded in every step: it follows from the plan and from where values lie. Only the
results of operators that Python calls are measured, once: some of them are views of other arrays.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.graph.ssa import OpNode, VarNode
from dpexec.engine.ir.spec import Spec
from dpexec.engine.trace.events import Allocation, MemoryKind

__all__ = ["Life", "Measured", "lives", "measure", "nbytes_of", "stored"]

Measured = dict[VarNode, int]
"""The bytes that results of Python's kernels take; a view takes none."""


@dataclass(slots=True)
class Life:
    """A value that takes memory for a part of a step.

    Args:
        name: of the variable.
        device: index of the device.
        kind: what it is for, such as "gradient".
        bytes: how many bytes it takes.
        first: the node that makes it; None for feeds.
        last: its readers, of which the one that ends last frees it; empty: it stays to the end of
            the step.
        heir: the node whose result takes over its place in memory; None: there is none.
    """

    name: str
    device: int
    kind: MemoryKind
    bytes: int
    first: OpNode | None
    last: list[OpNode]
    heir: OpNode | None = None


def measure(node: OpNode, envs: Sequence[Env], measured: Measured) -> None:
    """Note how many bytes the results of a node take.

    Args:
        node: the node, which has just run.
        envs: the values, per device.
        measured: gets the bytes of each result.
    """
    made = [var for var in node.outputs if var.kind == "var"]
    names = {(var.device, var.name) for var in made}
    seen = {  # a kernel has no other values than these: looking at all would be quadratic
        id(_root(array))
        for var in node.inputs
        if (var.device, var.name) not in names
        for array in _arrays(envs[var.device].get(var.name))
    }
    for var in made:
        arrays = {
            id(_root(array)): _root(array) for array in _arrays(envs[var.device].get(var.name))
        }
        measured[var] = sum(array.nbytes for key, array in arrays.items() if key not in seen)
        seen.update(arrays)


def nbytes_of(value: Any) -> int:
    """How many bytes the arrays of a value have."""
    return sum(int(array.nbytes) for array in _arrays(value))


def _arrays(value: Any) -> list[Any]:
    if isinstance(value, SelectedRows):
        return [value.row_array, value.value]
    return [value] if hasattr(value, "nbytes") else []


def _root(array: Any) -> Any:
    while isinstance(getattr(array, "base", None), np.ndarray | type(array)):  # CuPy's, too
        array = array.base
    return array


def lives(
    plan: Plan,
    steps: Sequence[Sequence[Step]],
    specs: Sequence[Mapping[str, Spec]],
    measured: Measured,
) -> list[Life]:
    """The values of a step that take memory.

    Args:
        plan: the plan that runs.
        steps: the bound steps of every task, whose code knows where values lie.
        specs: of every value of a run, per device.
        measured: the bytes of results, as far as they have been measured.

    Returns:
        The values, feeds first, then in the order in which they are made.
    """
    found: list[Life] = []
    sharing: dict[int, list[Life]] = {}
    nodes = (node for task in plan.tasks for node in task.nodes)
    order = {node: number for number, node in enumerate(nodes)}
    updated, kept = set(plan.overwritten), set(plan.commits)  # lists as long as the parameters
    for task, bound in zip(plan.tasks, steps, strict=True):
        places = _places(bound)
        outputs = ((node, var) for node in task.nodes for var in node.outputs)
        for node, var in outputs:
            place = var.device, var.name
            if var.kind != "var" or place in updated or var in plan.missing:
                continue
            stays = place in kept or var.name in plan.fetch
            for address, nbytes in places.get(var.name) or [(0, _size(var, specs, measured))]:
                if nbytes:
                    found.append(_life(var, node, nbytes, stays, order))
                if nbytes and address:
                    sharing.setdefault(address, []).append(found[-1])
    for lives_there in sharing.values():
        _hand_over(lives_there, order)
    return [*_fed(plan, specs), *found]


def _places(steps: Sequence[Step]) -> dict[str, list[tuple[int, int]]]:
    """Addresses and bytes of the values that code computes, by name."""
    found: dict[str, list[tuple[int, int]]] = {}
    for code in (step.code for step in steps if step.code is not None):
        for name, address, nbytes in code.values():
            found.setdefault(name, []).append((address, nbytes))
    return found


def _size(var: VarNode, specs: Sequence[Mapping[str, Spec]], measured: Measured) -> int:
    """The bytes of a value that a kernel of Python or a sum of such values makes."""
    if var in measured:
        return measured[var]
    node = var.writer
    if node is not None and node.is_collective:  # all devices get one array
        first = next(other for other in node.outputs if other.name == var.name)
        if var is not first:
            return 0
    spec = specs[var.device].get(var.name)
    return 0 if spec is None else spec.nbytes or 0


def _life(
    var: VarNode, node: OpNode, nbytes: int, stays: bool, order: Mapping[OpNode, int]
) -> Life:
    last = [] if stays else [reader for reader in var.readers if reader in order] or [node]
    return Life(var.name, var.device, _kind(var.name), nbytes, node, last)


def _kind(name: str) -> MemoryKind:
    return "gradient" if "@GRAD" in name else "temporary"


def _hand_over(sharing: list[Life], order: Mapping[OpNode, int]) -> None:
    """Let values that share a place have it in turn; the latest keeps it until all are read."""

    def end(life: Life) -> int:
        return max((order[node] for node in life.last), default=len(order))

    sharing.sort(key=lambda life: order[life.first] if life.first else -1)
    for before, after in itertools.pairwise(sharing):
        assert after.first is not None
        if end(before) >= order[after.first]:
            if end(before) > end(after):
                after.last = before.last
            before.heir = after.first


def _fed(plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> Iterator[Life]:
    variables = plan.graph.program.global_block().vars
    for device, versions in enumerate(plan.graph.versions):
        for name, (var, *_) in versions.items():
            declared = variables.get(name)
            stored = declared is not None and declared.persistable
            spec = specs[device].get(name)
            fed = var.writer is None and var.kind == "var" and not stored and _needed(var)
            if fed and spec is not None and spec.nbytes:
                yield Life(name, device, "feed", spec.nbytes, None, [])


def _needed(var: VarNode) -> bool:
    """Whether some reader needs its value.

    An operator that runs a block reads all variables that the block may write, but does not need
    a value of each.
    """
    return any(node.op is None or var.name in node.op.needs for node in var.readers)


def stored(
    plan: Plan, specs: Sequence[Mapping[str, Spec]], shared: bool, time: float
) -> Iterator[Allocation]:
    """The parameters and states that take memory before a step.

    Args:
        plan: the plan that reads them.
        specs: of every value of a run, per device.
        shared: whether all devices use the variables of device 0.
        time: of the allocations.
    """
    block = plan.graph.program.global_block()
    parameters = {parameter.name for parameter in block.all_parameters()}
    names: dict[tuple[int, str], None] = {}
    for device, reads in enumerate(plan.reads):
        names.update(dict.fromkeys((0 if shared else device, name) for name in reads))
    for device, name in names:
        spec = next((s[name] for s in (specs[device], *specs) if name in s), None)
        if spec is not None and spec.nbytes:
            kind: MemoryKind = "parameter" if name in parameters else "state"
            yield Allocation(time, device, name, spec.nbytes, kind)
