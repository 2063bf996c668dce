"""From the tasks of a binding to items of code: tables of kernels, and what waits for what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.binding import Binding, Memory
from dpexec.engine.compile.code.row_limits import row_limits
from dpexec.engine.compile.code.run import CodeRun
from dpexec.engine.compile.code.sizes import Computed, OpenParts
from dpexec.engine.compile.code.sums import Joined, NotCodeError, TaskSums, divided, parts_of
from dpexec.engine.compile.collectives import sums_of
from dpexec.engine.compile.env import Shard
from dpexec.engine.compile.partition import Task
from dpexec.engine.compile.plan import Plan
from dpexec.engine.compile.records import NodeRows
from dpexec.engine.core.places import on_gpus
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Sparse, Value

__all__ = ["Items", "NotCodeError", "Outside", "items_of"]


class Outside:
    """A feed or a stored variable, and where its address goes.

    Args:
        device: whose.
        value: what code takes it for.
    """

    def __init__(self, device: int, value: Value) -> None:
        self.device, self.name = device, value.name
        self.dtype, self._shape = value.dtype, value.shape
        self.positions: list[int] = []

    def fits(self, array: Any) -> bool:
        """Whether an array is what the code was made for."""
        return (
            isinstance(array, np.ndarray)
            and (array.shape, array.dtype) == (self._shape, self.dtype)
            and array.flags.c_contiguous
        )

    def write(self, words: memoryview, array: np.ndarray[Any, Any]) -> None:
        """Tell the code where it lies."""
        begin = address(array)
        for position in self.positions:
            words[position] = begin


class Items:
    """The items of a binding while they are put together.

    Args:
        plan: the plan.
        threads: how many work together.
        limits: per device, how many rows sparse values have at most, by name.

    Attributes:
        outside: what comes from feeds and stored variables.
        computed: what code computes, per device and name.
        numbers: device, position, and what gives the number when it is called with the shard.
        waits: per item, the items that it waits for.
        threads: per item, the thread that is to look at it first.
        parts: per item, its task and what it does.
        open: what depends on how many rows there are.
        joined: sums whose size only a run tells.
        kept: what must live as long as the code.
    """

    def __init__(self, plan: Plan, threads: int, limits: Sequence[Mapping[str, int]]) -> None:
        self.outside: list[Outside] = []
        self.computed: list[dict[str, Computed]] = [{} for _ in plan.graph.places]
        self.numbers: list[tuple[int, int, Callable[[Shard], Any]]] = []
        self.waits: list[list[int]] = []
        self.threads: list[int] = []
        self.parts: list[tuple[Task, list[NodeRows]]] = []
        self.open = OpenParts()
        self.joined: list[Joined] = []
        self.kept: list[Any] = []
        self._plan = plan
        self._limits = limits
        self._number_of_threads = threads
        self._words: list[int] = []
        self._alone: set[tuple[int, str]] = set()  # device and name of values with their own memory
        self._tables: list[list[tuple[int, int]]] = []  # kernel's address, position of arguments
        self._sources: dict[tuple[int, str], Outside] = {}
        self._ends: dict[int, list[int]] = {}

    def finish(self) -> None:
        """Put the words into memory, as addresses of arguments must not change any more."""
        self.words = np.array(self._words, np.int64)

    def tables(self) -> list[np.ndarray[Any, Any]]:
        """Per item, its kernels with the addresses of their arguments."""
        base = self.words.ctypes.data
        return [
            np.array([(kernel, base + 8 * at) for kernel, at in table], np.int64).reshape(-1, 2)
            for table in self._tables
        ]

    def add(self, task: Task, waits: Sequence[int], thread: int) -> list[tuple[int, int]]:
        """A new item of a task; returns its table."""
        number = len(self._tables)
        before = [end for index in task.after for end in self._ends[index]]
        self._ends.setdefault(task.id, []).append(number)
        self.waits.append([*before, *waits])
        self.threads.append(thread % self._number_of_threads)
        self._tables.append([])
        self.parts.append((task, []))
        return self._tables[-1]

    # ---- pieces of code

    def take_code(self, task: Task, code: CodeRun) -> None:
        """Add a piece of code."""
        device = task.device
        assert device is not None
        table = self.add(task, self._ends.get(task.id, ())[-1:], device)
        for steps, end in code.parts:
            self.parts[-1][1].append(([step.node for step in steps], end, (1, 1)))
        first, base = len(self._words), address(code.words)
        self._words.extend(code.words.tolist())
        table.extend((kernel, first + (at - base) // 8) for kernel, at in code.table.tolist())
        self.numbers += [(device, first + at, number) for at, number in code.numbers]
        for source in code.brought:
            self._bring(device, source.value, [first + at for at in source.positions])
        self.open.take(task, code, first)
        self._alone.update((device, name) for name in code.alone)
        for name, array in code.dense:
            if not array.flags.c_contiguous:
                raise NotCodeError
            self.computed[device][name] = code.made[name], [array]
        for name, value, arrays in code.others:
            self.computed[device][name] = value, arrays
        self.kept.append(code)

    def _bring(self, device: int, value: Value, positions: list[int]) -> None:
        found = self.computed[device].get(value.name)
        if found is not None:
            begin = address(_part(*found, value))
            for position in positions:
                self._words[position] = begin
            return
        if value.part:
            raise NotCodeError
        key = device, value.name
        if key not in self._sources:
            self._sources[key] = Outside(device, value)
            self.outside.append(self._sources[key])
        self._sources[key].positions.extend(positions)

    # ---- collectives

    def take_collective(self, task: Task, memory: Memory) -> None:
        """Add the sums of a task.

        Args:
            task: the task.
            memory: where they lie.

        Raises:
            NotCodeError: there is no code that does it.
        """
        sums = TaskSums(task, memory, self._limits)
        for node in task.nodes:
            if node.kind in ("split", "merge"):
                raise NotCodeError
            for name, devices, made, targets in sums_of(node, self._plan.missing):
                values = [self._known(device, name) for device in devices]
                total = sums.add(node, name, values, self._ends_here(node, name))
                for target in targets:
                    self.computed[target][made] = total
                    self.open.forget(target, made)
        self.joined += sums.joined
        self.kept += sums.kept
        home = task.device
        threads = self._number_of_threads if home is None else 1
        for thread, rows in enumerate(divided(sums.rows, threads)):
            table = self.add(task, (), thread if home is None else home)
            for _, kernel, arguments in rows:
                table.append((kernel.address, len(self._words)))
                self._words.extend(arguments)
            idle = () if thread else task.nodes
            self.parts[-1][1].extend(parts_of(rows, sums.rows, idle))

    def _known(self, device: int, name: str) -> Computed:
        if name not in self.computed[device]:
            raise NotCodeError
        return self.computed[device][name]

    def _ends_here(self, node: OpNode, name: str) -> bool:
        """Whether nobody but a collective reads a value of the first device in its memory."""
        missing = self._plan.missing
        source = next(v for v in node.inputs if v.name == name and v not in missing)
        return source.readers == [node] and (source.device, name) in self._alone


def items_of(binding: Binding, threads: int) -> Items:
    """The items of a binding.

    Args:
        binding: what runs.
        threads: how many work together.

    Raises:
        NotCodeError: some of it is not code.
    """
    plan = binding.plan
    if on_gpus(plan.graph.places):
        raise NotCodeError
    items = Items(plan, threads, row_limits(plan.nodes, plan.missing, binding.given))
    for task, steps in zip(plan.tasks, binding.steps, strict=True):
        if task.is_collective:
            items.take_collective(task, binding.memory)
        for step in () if task.is_collective else steps:
            if step.code is None:
                raise NotCodeError
            items.take_code(task, step.code)
    items.finish()
    return items


def _part(
    made: Value | Sparse, arrays: list[np.ndarray[Any, Any]], value: Value
) -> np.ndarray[Any, Any]:
    """The array that stands for what a piece of code takes from another one."""
    names = [part.part for part in made.parts]
    if value.part not in names:
        raise NotCodeError
    array = arrays[names.index(value.part)]
    first = 1 if value.part else 0  # kernels go by how many rows there are, not by the room
    fits = array.shape[first:] == value.shape[first:]
    if not fits or array.dtype != value.dtype:
        raise NotCodeError
    return array
