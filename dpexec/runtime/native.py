"""Operators of a task as machine code: which, in which memory, in which order.

A plan is bound once more when the shapes of a batch are known. In every task the operators that
have a lowering (:mod:`dpexec.kernels.lowering`) are put together to pieces of code; each piece is
one step, which runs without the GIL. What only code uses lies in one block of memory per device,
where values whose lives do not overlap share a place; what anything else reads lies by itself and
is put into the env. The rest runs as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpexec.core.places import CUDAPlace
from dpexec.ir.sizes import Rows
from dpexec.ir.spec import Spec
from dpexec.runtime.binding import Memory
from dpexec.runtime.plan import Plan
from dpexec.runtime.row_limits import row_limits
from dpexec.runtime.steps import Step
from dpexec.runtime.task_code import TaskCode

__all__ = ["PlanCode", "make_code"]


@dataclass(eq=False)
class PlanCode:
    """The code of a plan's tasks.

    Args:
        plan: the plan.
        codes: by task; the others have none.
        homes: by task: the first task of those that may use one memory, as they run in turn.
        needed: bytes of that memory.
    """

    plan: Plan
    codes: dict[int, TaskCode]
    homes: Mapping[int, int]
    needed: dict[int, int]

    def steps(self, memory: Memory, rows: Sequence[int]) -> list[list[Step]]:
        """The steps of all tasks, where values have a place.

        Args:
            memory: where values lie.
            rows: of every device's batch, on which sizes may depend.
        """
        found = []
        for task, steps in zip(self.plan.tasks, self.plan.steps, strict=True):
            if task.id in self.codes:
                assert task.device is not None
                code, home = self.codes[task.id], self.homes[task.id]
                inner = memory.block(("inner", home), self.needed[home])
                lasting = memory.block(("lasting", task.id), code.lasting_bytes)
                steps = code.finish(inner, lasting, steps, rows[task.device])
            found.append(steps)
        return found


def make_code(
    plan: Plan,
    specs: Sequence[Mapping[str, Spec]],
    halves: bool = False,
    rows: Rows | None = None,
) -> PlanCode:
    """Code for what can be code.

    Args:
        plan: the plan; on GPUs nothing becomes code.
        specs: of every value of a run, per device.
        halves: matrix products round their operands to bfloat16.
        rows: what the specs depend on, if it is open how many there are.
    """
    facts = _facts(plan)
    home, places = facts.homes, plan.graph.places
    limits = row_limits(plan.nodes, plan.missing, specs)
    specs = _reliable(plan, specs)
    codes: dict[int, TaskCode] = {}
    needed: dict[int, int] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        device = task.device
        if task.is_collective or device is None or isinstance(places[device], CUDAPlace):
            continue
        code = codes[task.id] = facts.kinds[task.id].code(
            steps, specs[device], limits[device], halves, rows
        )
        needed[home[task.id]] = max(needed.get(home[task.id], 0), code.inner_bytes)
    return PlanCode(plan, codes, home, needed)


def _reliable(plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> list[Mapping[str, Spec]]:
    """The specs without what only a run tells: how many rows a sparse gradient has as an array."""
    unsure: list[set[str]] = [set() for _ in specs]
    for node in plan.nodes:
        begins = node.op is not None and node.op.type == "get_tensor_from_selected_rows"
        if begins or any(var.name in unsure[var.device] for var in node.inputs):
            for var in node.outputs:
                spec = specs[var.device].get(var.name)
                if spec is not None and spec.size != 1:
                    unsure[var.device].add(var.name)
    return [
        {name: spec for name, spec in found.items() if name not in names} if names else found
        for found, names in zip(specs, unsure, strict=True)
    ]


_CODES_KEPT = 8


@dataclass(eq=False)
class _Kind:
    """Tasks with the same operators, of several devices: with the same shapes they share code.

    Args:
        outside: names whose values are needed outside of the task.
        overwritten: names of persistable variables that are updated in place.
        names: of all variables.
        fetched: names whose values are results of a run.
        latest: codes, each with the rows that are open in it and the shapes that it is for.
    """

    outside: frozenset[str]
    overwritten: frozenset[str]
    names: list[str]
    fetched: Collection[str]
    latest: list[tuple[Rows | None, list[Any], TaskCode]] = field(default_factory=list)

    def code(
        self,
        steps: Sequence[Step],
        specs: Mapping[str, Spec],
        limits: Mapping[str, int],
        halves: bool,
        rows: Rows | None,
    ) -> TaskCode:
        """The code of a task for some shapes."""
        shapes: list[Any] = [specs.get(name) for name in self.names]
        shapes += [limits.get(name) for name in self.names]
        for for_rows, before, code in self.latest:
            if for_rows is rows and before == shapes:
                return code
        made = TaskCode(specs, self.outside, self.overwritten, limits, halves, self.fetched)
        made.take(steps)
        made.layout()
        self.latest = [(rows, shapes, made), *self.latest[: _CODES_KEPT - 1]]
        return made


@dataclass(eq=False)
class _Facts:
    """What holds for a plan whatever the shapes are.

    Args:
        homes: by task: the first task of those that may use one memory, as they run in turn.
        kinds: by task.
    """

    homes: dict[int, int]
    kinds: dict[int, _Kind]


_known: weakref.WeakKeyDictionary[Plan, _Facts] = weakref.WeakKeyDictionary()


def _facts(plan: Plan) -> _Facts:
    if plan not in _known:
        _known[plan] = _Facts(_homes(plan), _kinds(plan))
    return _known[plan]


def _kinds(plan: Plan) -> dict[int, _Kind]:
    outside = _read_elsewhere(plan)
    made: dict[Any, _Kind] = {}
    found: dict[int, _Kind] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        overwritten = frozenset(name for place, name in plan.overwritten if place == task.device)
        names = dict.fromkeys(v.name for n in task.nodes for v in (*n.inputs, *n.outputs))
        parts = tuple((id(step.node.op), step.node.kind, step.drops) for step in steps)
        here = frozenset(outside[task.id]), overwritten.intersection(names)
        kind = _Kind(*here, list(names), plan.fetch)
        found[task.id] = made.setdefault((parts, *here), kind)
    return found


def _homes(plan: Plan) -> dict[int, int]:
    homes: dict[int, int] = {}
    last: dict[int | None, int] = {}
    for task in plan.tasks:
        before = last.get(task.device, task.id)
        homes[task.id] = homes[before] if before in task.after else task.id
        last[task.device] = task.id
    return homes


def _read_elsewhere(plan: Plan) -> dict[int, set[str]]:
    readers: dict[tuple[int, str], set[int]] = {}
    for task in plan.tasks:
        for node in task.nodes:
            for var in node.inputs:
                readers.setdefault((var.device, var.name), set()).add(task.id)
    kept = {(device, name) for device in plan.active for name in plan.fetch}
    kept.update(plan.commits)
    found: dict[int, set[str]] = {}
    for task in plan.tasks:
        places = {(var.device, var.name) for node in task.nodes for var in node.outputs}
        found[task.id] = {
            place[1] for place in places if place in kept or readers.get(place, set()) - {task.id}
        }
    return found
