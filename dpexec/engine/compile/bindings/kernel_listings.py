"""Which kernels did the work of a plan's operators, with the source text of each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpexec.engine import kernels
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.collectives import combined, sums_of
from dpexec.engine.compile.regions import ran
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.ran import called_by
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.graph.kinds import COMPUTE
from dpexec.engine.graph.listings import Listing, Listings, python_listing
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.roles import role_name
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.implementations import find

if TYPE_CHECKING:
    from dpexec.engine.kernels.machine import Kernel

__all__ = ["add_kernels", "kernels_for"]


def add_kernels(data: dict[str, Any], binding: Binding, whole: bool, here: bool) -> None:
    """Say in a graph file which kernels ran: ``kernels`` of its nodes, numbers of ``listings``.

    An empty list means that no kernel was needed: the node's result is its input. Nodes get no list
    if this process cannot know their kernels, such as sums among processes.

    Args:
        data: the result of :func:`dpexec.engine.graph.describe.describe` for the binding's plan.
        binding: the binding that ran.
        whole: whether its steps were whole steps of code, collectives included.
        here: whether this process ran them.
    """
    listings, nodes, plan = Listings(data["listings"]), data["nodes"], binding.plan
    for done, found in _machine_code(binding):
        numbers = [listings.number(_listing(kernel)) for kernel in found]
        for node in done:
            nodes[node.id]["kernels"] = numbers
    for node in plan.nodes:
        if "kernels" not in nodes[node.id]:
            listing = _collective(binding, node, whole, here)
            if not node.is_collective:
                listing = _called(binding, node)
            if listing is not None:
                nodes[node.id]["kernels"] = [listings.number(one) for one in listing]
        if here and node.op is not None and node.device is not None:
            inner = zip(_inner(node.op), nodes[node.id].get("body", ()), strict=True)
            for op, entry in inner:
                texts = _ran_in_block(binding, op, node.device)
                entry["kernels"] = [listings.number(one) for one in texts]
    data["listings"] = listings.all


def kernels_for(op: Operator, specs: Mapping[str, Spec]) -> list[Listing] | None:
    """The kernels of an operator on its own; None if it does not become machine code.

    Args:
        op: the operator.
        specs: the specs of the variables that it reads and writes, without open sizes.
    """
    if not kernels.available() or op.bodies:
        return None
    kernels.load()
    from dpexec.engine.compile.regions.task import TaskCode

    node = OpNode(0, COMPUTE, op.type, 0, op=op, role=role_name(op.role))
    task = TaskCode(specs, frozenset(op.output_arg_names), frozenset(op.output_arg_names), {})
    step = Step(node, _nothing)
    try:
        task.take([step])
    except EnforceNotMet:  # declared sizes of -1 need not fit each other
        return None
    task.layout()
    found = [called_by(calls) for _, calls in task.kernels([step])]
    return [_listing(kernel) for kernel in found[0]] if found else None


def _nothing(env: Env) -> None:
    """Stands for the work of a step that only becomes code."""


def _machine_code(binding: Binding) -> Iterator[tuple[list[OpNode], list[Kernel]]]:
    """The nodes that are machine code; nodes that one kernel computes come together.

    Rows of code that only call Python are left out.
    """
    from dpexec.engine.kernels.in_python import in_python

    plan = binding.plan
    if (
        not binding.native
        or plan.checked
        or plan.initializes
        or binding.native != kernels.libraries()
    ):
        return
    code = binding.code or binding.make_code()
    for number, task in code.codes.items():
        for done, calls in task.kernels(plan.steps[number]):
            if all(kernel is not in_python for kernel, _ in calls):
                yield done, called_by(calls)


def _listing(kernel: Kernel) -> Listing:
    """The name, arguments and source text of a kernel."""
    name = str(kernel)
    return {"name": name, "kind": "machine code", "takes": kernel.takes, "source": kernel.source}


def _called(binding: Binding, node: OpNode) -> list[Listing] | None:
    """The Python function that a node called."""
    op, device = node.op, node.device
    if op is None or device is None or node.does.seeds or not node.does.computes:
        return None
    return [_function(binding, op, device)]


def _function(binding: Binding, op: Operator, device: int) -> Listing:
    """The Python function that computes an operator on a device."""
    gpu = isinstance(binding.plan.graph.places[device], CUDAPlace)
    found = find(op.type, "gpu" if gpu else "host") if gpu or binding.native else None
    function = None if found is None else found.kernel(op.type)
    if function is None:
        return python_listing(op.definition.kernel, "declaration")
    return python_listing(function)


def _inner(op: Operator) -> Iterator[Operator]:
    """The operators of the blocks that an operator runs, in the order of `body_of`."""
    for block in op.bodies:
        for inner in block.ops:
            yield inner
            yield from _inner(inner)


def _ran_in_block(binding: Binding, op: Operator, device: int) -> list[Listing]:
    """The kernels of an operator of a block: those of its region, or a function of Python."""
    found = ran.kernels_of(op)
    if found is None:
        return [_function(binding, op, device)]
    return [_listing(kernel) for kernel in found]


def _collective(binding: Binding, node: OpNode, whole: bool, here: bool) -> list[Listing] | None:
    """The kernels that combined values of devices; None if they are not known."""
    among_processes = not here or (not whole and binding.plan.graph.trainers > 1)
    if not node.is_collective or node.does.moves_rows or among_processes:
        return None
    if not whole:
        return [python_listing(combined)]
    from dpexec.engine.kernels import collectives

    found: dict[Kernel, None] = {}
    for name, devices, _, _, how in sums_of(node, binding.plan.missing):
        specs = [binding.specs[device].get(name) for device in devices]
        sparse = any(spec is not None and spec.kind == VarType.SELECTED_ROWS for spec in specs)
        kernel = collectives.join if sparse else collectives.COMBINE.get(how)
        if kernel is None:
            return None
        found[kernel] = None
    return [_listing(kernel) for kernel in found]
