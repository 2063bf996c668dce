"""Machine code for the tasks of a plan, and the memory that it works in.

When the shapes of a batch are known, the operators of a task that have a lowering
(:mod:`dpexec.engine.kernels.lowering`) are put together to pieces of code. Each piece is one step,
which runs without the GIL; all other operators stay steps of Python. The values of a chain of tasks
lie in one block of memory, where values whose lives do not overlap share a place. Values that are
read outside of a piece are put into the env, too.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dpexec.engine.compile.bindings.row_limits import row_limits
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan, tasks_before
from dpexec.engine.compile.regions.arena import Arena, arena_of
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.compile.regions.table import CodeTable
from dpexec.engine.compile.regions.task import TaskCode
from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.ir.sizes import Counts, Rows
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels.values import Packed

__all__ = ["PlanCode", "SizedArguments", "make_code"]

_CODES_KEPT = limit_of("codes of tasks")

SizedArguments = Mapping[int, Mapping[CodeTable, Sequence[Any]]]
"""By task and table, the arguments that were made for certain numbers of rows."""


@dataclass(eq=False)
class PlanCode:
    """The code of a plan's tasks.

    Args:
        plan: the plan.
        codes: code by number of the task; collective tasks and those of GPUs have none.
        chains: tasks that run one after another and share memory, by the first of them.
        arenas: the places of their values, by the first task of the chain.
    """

    plan: Plan
    codes: dict[int, TaskCode]
    chains: Mapping[int, Sequence[int]]
    arenas: Mapping[int, Arena]

    def sized(self, rows: Sequence[Counts]) -> SizedArguments:
        """What is made for certain numbers of rows, by task; tasks that need nothing are left out.

        Args:
            rows: the numbers of rows of every device's batch.

        Raises:
            NeedsNumber: these numbers of rows need more memory than others.
        """
        return {task: code.sized(rows[device]) for task, device, code in self._sized_codes}

    @functools.cached_property
    def _sized_codes(self) -> list[tuple[int, int, TaskCode]]:
        found = ((task, self._device(task), code) for task, code in self.codes.items())
        return [(task, device, code) for task, device, code in found if code.sized_tables]

    def _device(self, task: int) -> int:
        device = self.plan.tasks[task].device
        assert device is not None
        return device

    def steps(
        self, memory: Memory, rows: Sequence[Counts], sized: SizedArguments
    ) -> list[list[Step]]:
        """The steps of all tasks, with places for their values.

        Args:
            memory: where values lie.
            rows: the numbers of rows of every device's batch, if sizes depend on them.
            sized: the result of :meth:`sized` for these numbers.
        """
        found = list(self.plan.steps)
        for home, chain in self.chains.items():
            arena = self.arenas[home]
            block = memory.block(("arena", home), arena.nbytes)
            for number, inner, lasting in zip(chain, arena.inner, arena.lasting, strict=True):
                found[number] = self.codes[number].finish(
                    block,
                    inner,
                    lasting,
                    found[number],
                    rows[self._device(number)],
                    sized.get(number, {}),
                )
        return found


def make_code(
    plan: Plan,
    specs: Sequence[Mapping[str, Spec]],
    halves: bool = False,
    rows: Rows | None = None,
    more_rows: Mapping[str, int] = MappingProxyType({}),
    packed: Packed | None = None,
) -> PlanCode:
    """Code of the operators that have a lowering.

    Args:
        plan: the plan; tasks on GPUs become no code.
        specs: of every value of a run, per device.
        halves: whether matrix products round their operands to bfloat16.
        rows: the open numbers of rows on which the specs depend; None: all sizes are known.
        more_rows: the most rows that other processes add to sparse sums, by name.
        packed: variables that nobody changes, in other layouts; None: there may be none.
    """
    facts = _facts(plan)
    places = plan.graph.places
    limits = row_limits(plan.nodes, plan.missing, specs, more_rows)
    specs = _reliable(plan, specs)
    codes: dict[int, TaskCode] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        device = task.device
        if task.is_collective or device is None or isinstance(places[device], CUDAPlace):
            continue
        kind = facts.kinds[task.id]
        codes[task.id] = kind.code(steps, specs[device], limits[device], halves, rows, packed)
    chains = {home: tasks for home, tasks in facts.chains.items() if home in codes}
    return PlanCode(plan, codes, chains, _arenas(chains, codes, facts))


def _arenas(
    chains: Mapping[int, Sequence[int]], codes: Mapping[int, TaskCode], facts: _Facts
) -> dict[int, Arena]:
    """The places of all values; devices whose tasks share code share the layout, too."""
    plain = {name for code in codes.values() for name in code.plain_reads}
    known: dict[Any, Arena] = {}
    found: dict[int, Arena] = {}
    for home, chain in chains.items():
        made = [codes[number] for number in chain]
        lives = [
            _last_readers(codes[number], facts.readers[number], chain, plain) for number in chain
        ]
        key = tuple(map(id, made)), tuple(tuple(last.items()) for last in lives)
        if key not in known:
            known[key] = arena_of([code.sizes for code in made], lives)
        found[home] = known[key]
    return found


def _after_all(task: int | None) -> float:
    return math.inf if task is None else task


def _last_readers(
    code: TaskCode,
    readers: Mapping[str, int | None],
    chain: Sequence[int],
    plain: set[str],
) -> dict[int, int]:
    """By the number of a lasting buffer, the last task of the chain that needs it.

    Buffers are left out whose place must not be used again: steps of Python read them, whose
    results may be views; or tasks of other chains; or they are read after the run.
    """
    found: dict[int, int] = {}
    for number, buffer in enumerate(code.lasting):
        names = code.holders.get(buffer, [])
        last = max((_after_all(readers.get(name, -1)) for name in names), default=-1)
        if last in chain and plain.isdisjoint(names):
            found[number] = chain.index(int(last))
    return found


def _reliable(plan: Plan, specs: Sequence[Mapping[str, Spec]]) -> list[Mapping[str, Spec]]:
    """The specs, with shapes made unknown that only a run determines.

    Some operators return as many rows as they find (``rows_by_run``), such as the rows of a sparse
    gradient as an array.
    """
    unsure: list[set[str]] = [set() for _ in specs]
    for node in plan.nodes:
        begins = node.op is not None and node.op.definition.rows_by_run
        if begins or any(var.name in unsure[var.device] for var in node.inputs):
            for var in node.outputs:
                spec = specs[var.device].get(var.name)
                if spec is not None and spec.size != 1:
                    unsure[var.device].add(var.name)
    return [
        {**found, **{name: found[name].replace(shape=(-1,)) for name in names}} if names else found
        for found, names in zip(specs, unsure, strict=True)
    ]


@dataclass(eq=False)
class _Kind:
    """Tasks of several devices with the same operators; with the same shapes they share code.

    Args:
        outside: names whose values are needed outside of the task.
        overwritten: names of persistable variables that are updated in place.
        names: names of all variables of the task.
        fetched: names whose values are fetched.
        latest: the codes made last, each with its open numbers of rows and its shapes.
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
        packed: Packed | None,
    ) -> TaskCode:
        """The code of a task for some shapes."""
        shapes: list[Any] = [specs.get(name) for name in self.names]
        shapes += [limits.get(name) for name in self.names]
        for for_rows, before, code in self.latest:
            if for_rows is rows and before == shapes:
                return code
        made = TaskCode(
            specs, self.outside, self.overwritten, limits, halves, self.fetched, packed, rows=True
        )
        made.take(steps)
        made.layout()
        self.latest = [(rows, shapes, made), *self.latest[: _CODES_KEPT - 1]]
        return made


@dataclass(eq=False)
class _Facts:
    """Facts about a plan that do not depend on shapes.

    Args:
        chains: tasks of a device that run one after another, by the first of them.
        readers: by task and name of a result, the last task of the chain that may run while it is
            needed; None if collectives need it, or it is needed after the run.
        kinds: by number of the task.
    """

    chains: dict[int, list[int]]
    readers: list[dict[str, int | None]]
    kinds: dict[int, _Kind]


_known: weakref.WeakKeyDictionary[Plan, _Facts] = weakref.WeakKeyDictionary()


def _facts(plan: Plan) -> _Facts:
    if plan not in _known:
        before, places = tasks_before(plan.tasks), _places_read(plan)
        chains = _chains(plan, before)
        last = _last_tasks(plan, chains, places, before)
        _known[plan] = _Facts(chains, last, _kinds(plan, places))
    return _known[plan]


def _kinds(plan: Plan, read: _Readers) -> dict[int, _Kind]:
    outside = _read_elsewhere(plan, read)
    made: dict[Any, _Kind] = {}
    found: dict[int, _Kind] = {}
    for task, steps in zip(plan.tasks, plan.steps, strict=True):
        overwritten = frozenset(name for place, name in plan.overwritten if place == task.device)
        names = dict.fromkeys(v.name for n in task.nodes for v in (*n.inputs, *n.outputs))
        parts = tuple((id(step.node.op), step.node.does, step.drops) for step in steps)
        elsewhere, written = frozenset(outside[task.id]), overwritten.intersection(names)
        kind = _Kind(elsewhere, written, list(names), plan.fetch)
        found[task.id] = made.setdefault((parts, elsewhere, written), kind)
    return found


def _chains(plan: Plan, before: Sequence[int]) -> dict[int, list[int]]:
    """Chains of tasks, by their first task.

    A task continues the first chain of its device whose last task has ended when it starts.
    """
    chains: dict[int, list[int]] = {}
    known: dict[int | None, list[list[int]]] = {}
    for task in plan.tasks:
        if task.is_collective:
            continue
        own = known.setdefault(task.device, [])
        ended = (chain for chain in own if before[task.id] >> chain[-1] & 1)
        chain = next(ended, None)
        if chain is None:
            chain = chains[task.id] = []
            own.append(chain)
        chain.append(task.id)
    return chains


_Readers = dict[tuple[int, str], set[int]]


def _places_read(plan: Plan) -> _Readers:
    """By device and name, the tasks that read it."""
    readers: _Readers = {}
    for task in plan.tasks:
        for node in task.nodes:
            for var in node.inputs:
                readers.setdefault((var.device, var.name), set()).add(task.id)
    return readers


def _kept(plan: Plan) -> set[tuple[int, str]]:
    """Device and name of the values that are needed after the run."""
    fetched = zip(plan.fetch, plan.sources, strict=True)
    return {(d, name) for name, held in fetched for d in held}.union(plan.commits)


def _last_tasks(
    plan: Plan, chains: Mapping[int, Sequence[int]], read: _Readers, before: Sequence[int]
) -> list[dict[str, int | None]]:
    found: list[dict[str, int | None]] = [{} for _ in plan.tasks]
    kept = _kept(plan)
    for chain in chains.values():
        for number in chain:
            for var in (var for node in plan.tasks[number].nodes for var in node.outputs):
                place = var.device, var.name
                readers = [plan.tasks[index] for index in read.get(place, ())]
                if place not in kept and not any(task.is_collective for task in readers):
                    found[number][var.name] = _last_of(chain, readers, before)
                else:
                    found[number][var.name] = None
    return found


def _last_of(chain: Sequence[int], readers: Sequence[Task], before: Sequence[int]) -> int | None:
    """The last task of a chain that may run while a value still has readers, in any chain."""
    last = max((task.id for task in readers if task.id in chain), default=-1)
    others = sum(1 << task.id for task in readers if task.id not in chain)
    if not others:
        return last
    after = (index for index, number in enumerate(chain) if not others & ~before[number])
    first = next(after, None)  # never the chain's first task: readers wait for the value's task
    return None if first is None else max(last, chain[first - 1])


def _read_elsewhere(plan: Plan, read: _Readers) -> dict[int, set[str]]:
    kept = _kept(plan)
    found: dict[int, set[str]] = {}
    for task in plan.tasks:
        places = {(var.device, var.name) for node in task.nodes for var in node.outputs}
        found[task.id] = {
            place[1] for place in places if place in kept or read.get(place, set()) - {task.id}
        }
    return found
