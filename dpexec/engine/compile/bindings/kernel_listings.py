"""Which kernels did the work of a plan's operators, with the source text of each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine import kernels
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.collectives import combined, sums_of
from dpexec.engine.compile.regions.env import Env
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

_LONGEST_TABLE = 1024
"""Numbers of a constant among which addresses of kernels are looked for."""


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
    found = [_called_by(calls) for _, calls in task.kernels([step])]
    return [_listing(kernel) for kernel in found[0]] if found else None


def _nothing(env: Env) -> None:
    """Stands for the work of a step that only becomes code."""


def _machine_code(binding: Binding) -> Iterator[tuple[list[OpNode], list[Kernel]]]:
    """The nodes that are machine code; nodes that one kernel computes come together."""
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
            yield done, _called_by(calls)


def _called_by(calls: Sequence[tuple[Kernel, Sequence[Any]]]) -> list[Kernel]:
    """The kernels of some calls, and the kernels whose addresses they get as arguments.

    Args:
        calls: kernels and arguments.
    """
    from dpexec.engine.kernels.lowering import Constant
    from dpexec.engine.kernels.machine import at_address

    found: dict[Kernel, None] = {}
    for kernel, arguments in calls:
        found[kernel] = None
        for argument in arguments:
            if type(argument) is int:
                words: Sequence[int] = (argument,)
            elif isinstance(argument, Constant):
                words = _words(argument.array)
            else:
                continue
            found.update((at_address[word], None) for word in words if word in at_address)
    return list(found)


def _words(array: np.ndarray[Any, Any]) -> list[int]:
    """The numbers of a constant that may be addresses of kernels."""
    if array.dtype != np.int64 or array.size > _LONGEST_TABLE:
        return []
    words: list[int] = array.ravel().tolist()
    return words


def _listing(kernel: Kernel) -> Listing:
    """The name, arguments and source text of a kernel."""
    name = str(kernel)
    return {"name": name, "kind": "machine code", "takes": kernel.takes, "source": kernel.source}


def _called(binding: Binding, node: OpNode) -> list[Listing] | None:
    """The Python function that a node called."""
    op, device = node.op, node.device
    if op is None or device is None or node.does.seeds or not node.does.computes:
        return None
    gpu = isinstance(binding.plan.graph.places[device], CUDAPlace)
    found = find(op.type, "gpu" if gpu else "host") if gpu or binding.native else None
    function = None if found is None else found.kernel(op.type)
    if function is None:
        return [python_listing(op.definition.kernel, "declaration")]
    return [python_listing(function)]


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
