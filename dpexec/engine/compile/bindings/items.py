"""The tasks of a binding as items of code: tables of kernel calls, and the waits among them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.copies import CopyingCalls, shared_out
from dpexec.engine.compile.bindings.exchanged_sums import ExchangedSums, fits
from dpexec.engine.compile.bindings.exchanges import Exchange, Gates, TaskExchange, slots_of
from dpexec.engine.compile.bindings.outside import CodeStore, Outside
from dpexec.engine.compile.bindings.records import NodeRows
from dpexec.engine.compile.bindings.row_limits import row_limits
from dpexec.engine.compile.bindings.sizes import Computed, OpenParts
from dpexec.engine.compile.bindings.sums import (
    Joined,
    NotCodeError,
    Row,
    TaskSums,
    divided,
    part_of,
    parts_of,
)
from dpexec.engine.compile.plans.collectives import sums_of
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.code_run import CodeRun
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.compile.regions.operands import is_array
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import on_gpus
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.kernels import collectives
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Value
from dpexec.engine.kernels.machine import Kernel

__all__ = ["Items", "NotCodeError", "items_of"]


class Items:
    """The items of a binding while they are put together.

    Args:
        plan: the plan that runs.
        threads: how many threads work together.
        limits: per device, the most rows that sparse values have, by name.
        store: where its variables lie.
        exchange: other processes that take part; None: there are none.

    Attributes:
        outside: the feeds and stored variables that code reads or overwrites.
        computed: the values that code computes, per device and name.
        numbers: device, position of a word, and the function that gives its number for a shard.
        waits: per item, the items that it waits for.
        threads: per item, the thread that looks at it first.
        signs: by item, the addresses of the words of other processes that it waits for.
        exchanged: by task, device and name, the values that go into sums of several processes.
        gates: the items before updates; None: no other processes take part.
        copies: the items that copy variables before updates overwrite the copies.
        copies_updates: whether updates overwrite copies of variables.
        copying: the calls that copy what they overwrite themselves.
        spread: by device and name, the updated copy of another device that this variable takes.
        parts: per item, its task and the nodes whose work it does. Items without a task only wait.
        open: the words and arrays that depend on the number of rows.
        joined: sparse sums, whose size is known only after a run.
        kept: objects that must live as long as the code.
    """

    def __init__(
        self,
        plan: Plan,
        threads: int,
        limits: Sequence[Mapping[str, int]],
        store: CodeStore,
        exchange: Exchange | None = None,
    ) -> None:
        self.outside: list[Outside] = []
        self.computed: list[dict[str, Computed]] = [{} for _ in plan.graph.places]
        self.numbers: list[tuple[int, int, Callable[[Shard], Any]]] = []
        self.waits: list[list[int]] = []
        self.threads: list[int] = []
        self.signs: dict[int, Sequence[int]] = {}
        self.exchanged: dict[tuple[int, int, str], Computed | Outside] = {}
        self.gates: Gates | None = None
        self.copies: list[int] = []
        self.spread: dict[tuple[int, str], Outside] = {}
        self.parts: list[tuple[Task | None, list[NodeRows]]] = []
        self.open = OpenParts()
        self.joined: list[Joined] = []
        self.kept: list[Any] = []
        self._plan = plan
        self._limits = limits
        self._number_of_threads = threads
        self._words: list[int] = []
        self.copying = CopyingCalls(self._words)
        self._alone: set[tuple[int, str]] = set()  # device and name of values with their own memory
        self._tables: list[list[tuple[int, int]]] = []  # kernel's address, position of arguments
        self._sources: dict[tuple[int, str, bool], Outside] = {}
        self._ends: dict[int, list[int]] = {}
        self._here = frozenset(store.devices)
        self.copies_updates = store.copies and not store.updates_wait(plan)
        self._copied = frozenset(plan.overwritten) if self.copies_updates else frozenset()
        self._exchange = exchange
        self._slots: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
        if exchange is not None:
            self.kept.append(exchange)
            self._slots = slots_of(plan, exchange)

    def finish(self) -> None:
        """Put the words into an array, where their addresses stay."""
        self.words = np.array(self._words, np.int64)
        self.copying.place(self.words)
        self.kept += self.copying.records

    def tables(self) -> list[np.ndarray[Any, Any]]:
        """Per item, its kernels with the addresses of their arguments."""
        base = self.words.ctypes.data
        return [
            np.array([(kernel, base + 8 * at) for kernel, at in table], np.int64).reshape(-1, 2)
            for table in self._tables
        ]

    def add(self, task: Task, waits: Sequence[int], thread: int) -> list[tuple[int, int]]:
        """A new item of a task; returns its table."""
        before = [end for index in task.after for end in self._ends[index]]
        table = self._add(task, [*before, *waits], thread)
        self._ends.setdefault(task.id, []).append(len(self._tables) - 1)
        return table

    def _add(self, task: Task | None, waits: list[int], thread: int = 0) -> list[tuple[int, int]]:
        self.waits.append(waits)
        self.threads.append(thread % self._number_of_threads)
        self._tables.append([])
        self.parts.append((task, []))
        return self._tables[-1]

    def _call(self, rows: Sequence[Row]) -> None:
        """Let the latest item call kernels."""
        for _, kernel, arguments in rows:
            self._call_one(kernel, arguments)

    def _call_one(self, kernel: Kernel, arguments: Sequence[int | Outside]) -> None:
        self._tables[-1].append((kernel.address, len(self._words)))
        for argument in arguments:
            if isinstance(argument, Outside):
                argument.positions.append(len(self._words))
            self._words.append(0 if isinstance(argument, Outside) else argument)

    def _post(self, word: int) -> None:
        """Let the latest item tell other processes that it has come to its end."""
        assert self._exchange is not None
        self._tables[-1].append((collectives.post.address, len(self._words)))
        self._words.extend((word, self._exchange.turn))

    # ---- pieces of code

    def take_codes(self, task: Task, codes: Sequence[CodeRun]) -> None:
        """Add the pieces of code of a task of this process."""
        assert task.device is not None
        if task.device not in self._here:
            self._ends[task.id] = []
            return
        found = [self._moved(task.device, code) for code in codes if self._slots]
        moved = {number: slot for slots in found for number, slot in slots.items()}
        for code in codes:
            self._take_code(task, task.device, code, moved)

    def _moved(self, device: int, code: CodeRun) -> dict[int, np.ndarray[Any, Any]]:
        """Slots that values can be computed in, where other processes read them, by buffer."""
        found, alone = {}, set(code.alone)
        for name, value, arrays in code.published:
            slot = self._slots.get((device, name))
            if slot is None or name not in alone or not is_array(value):
                continue
            number = None if value.buffer is None else code.place.layout.numbers.get(value.buffer)
            if number is not None and fits(arrays[0], slot):
                found[number] = slot
        return found

    def _take_code(
        self, task: Task, device: int, code: CodeRun, moved: Mapping[int, np.ndarray[Any, Any]]
    ) -> None:
        table = self.add(task, self._ends.get(task.id, ())[-1:], device)
        for steps, end in code.parts:
            self.parts[-1][1].append(([step.node for step in steps], end, (1, 1)))
        first, base = len(self._words), address(code.words)
        words = code.words.tolist()
        for position, number in code.made_by.results if moved else ():
            if number in moved:
                words[position] = address(moved[number])
        self._words.extend(words)
        table.extend((kernel, first + (at - base) // 8) for kernel, at in code.table.tolist())
        if task.id in self._plan.behind_updates and self._copied:
            self.copying.note(table, code)
        self.numbers += [(device, first + at, number) for at, number in code.numbers]
        for source in code.brought:
            self._bring(task, device, source.value, [first + at for at in source.positions])
        self.open.take(task, code, first)
        self._alone.update((device, name) for name in code.alone)
        buffers = code.place.layout.numbers
        for name, array in code.dense:
            if not array.flags.c_contiguous:
                raise NotCodeError
            value = code.made[name]
            slot = moved.get(buffers.get(value.buffer, -1)) if value.buffer is not None else None
            self.computed[device][name] = value, [array if slot is None else slot]
        for name, value, arrays in code.others:
            self.computed[device][name] = value, arrays
        self.kept.append(code)

    def _bring(self, task: Task, device: int, value: Value, positions: list[int]) -> None:
        if (device, value.name) in self.spread:
            self.spread[device, value.name].positions.extend(positions)
            return
        found = self.computed[device].get(value.name)
        if found is not None:
            begin = address(part_of(*found, value))
            for position in positions:
                self._words[position] = begin
            return
        if value.part:
            raise NotCodeError
        copied = task.id in self._plan.behind_updates and (device, value.name) in self._copied
        self._source(device, value, copied).positions.extend(positions)

    def _source(self, device: int, value: Value, copied: bool) -> Outside:
        key = device, value.name, copied
        if key not in self._sources:
            self._sources[key] = Outside(device, value, copied)
            self.outside.append(self._sources[key])
        return self._sources[key]

    # ---- collectives

    def take_collective(self, task: Task, memory: Memory) -> None:
        """Add the sums of a task.

        Args:
            task: of a collective.
            memory: where they lie.

        Raises:
            NotCodeError: there is no code that does it.
        """
        found = None if self._exchange is None else self._exchange.task(task.id)
        if found is not None:
            return self._take_exchanged(task, found)
        sums = TaskSums(task, memory, self._limits)
        if any(node.does.moves_rows for node in task.nodes):
            raise NotCodeError
        for node in task.nodes:
            for name, devices, made, targets, how in sums_of(node, self._plan.missing):
                values = [self._known(device, name) for device in devices]
                total = sums.add(node, name, how, values, self._ends_here(node, name))
                for target in targets:
                    self.computed[target][made] = total
                    self.open.forget(target, made)
        self.joined += sums.joined
        self.kept += sums.kept
        home = task.device
        threads = self._number_of_threads if home is None else 1
        for thread, rows in enumerate(divided(sums.rows, threads)):
            self.add(task, (), thread if home is None else home)
            self._call(rows)
            idle = () if thread else task.nodes
            self.parts[-1][1].extend(parts_of(rows, sums.rows, idle))

    def _take_exchanged(self, task: Task, found: TaskExchange) -> None:
        """Add sums that other processes take part in: put values there, add up, wait for all."""
        sums = ExchangedSums(found, self._limits)
        for node in task.nodes:
            for name, devices, made, targets, how in sums_of(node, self._plan.missing):
                here = [device for device in devices if device in self._here]
                values = {device: self._given(device, name) for device in here}
                self.exchanged.update({(task.id, d, name): v for d, v in values.items()})
                total = sums.add(node, name, how, values)
                updated = [v for v in values.values() if isinstance(v, Outside)]
                for target in self._here.intersection(targets):
                    self.computed[target][made] = total
                    self.spread.update(((target, made), source) for source in updated)
                    self.open.forget(target, made)
        self.joined += sums.joined
        self.add(task, (), 0)
        for post in sums.posts:
            self._call_one(*post)
        self._post(found.posted.own)
        last = [len(self._tables) - 1]
        if sums.rows:
            last = self._add_up(task, found, sums.rows, last)
        elif found.summed.own != found.posted.own:
            self._post(found.summed.own)
        self._add(task, last)
        self.signs[len(self._tables) - 1] = found.summed.others
        if not sums.rows:  # this process adds up no part of the sums
            self.parts[-1][1].extend(parts_of((), (), task.nodes))
        self._ends[task.id] = [len(self._tables) - 1]

    def _add_up(
        self, task: Task, found: TaskExchange, rows: list[Row], after: list[int]
    ) -> list[int]:
        """Add items that add up the values of all; returns the item that says that it is done."""
        parts = divided(rows, self._number_of_threads)
        first = len(self._tables)
        for thread, own in enumerate(parts):
            self._add(task, after, thread)
            self.signs[len(self._tables) - 1] = found.posted.others
            self._call(own)
            idle = () if thread else task.nodes
            self.parts[-1][1].extend(parts_of(own, rows, idle))
        if len(parts) > 1:
            self._add(None, [*range(first, len(self._tables))])
        self._post(found.summed.own)
        return [len(self._tables) - 1]

    def take_gates(self) -> None:
        """Let updates wait until all processes have done what can fail, and for their copies."""
        plan, last = self._plan, []
        updates = [item for item, (of, _) in enumerate(self.parts) if of and of.id in plan.updates]
        if self._exchange is not None:
            before = (task.id for task in plan.tasks if task.id not in plan.behind_updates)
            self._add(None, [end for number in before for end in self._ends[number]])
            self._post(self._exchange.ready.own)
            self._add(None, [len(self._tables) - 1])
            self.gates = Gates(len(self._tables) - 2, len(self._tables) - 1)
            others = self._exchange.ready.others
            # each word is read twice: a member that gives up takes its word back
            self.signs[self.gates.go] = [*others, *others]
            last = [self.gates.go]
        self._add_copies(last)
        for item in updates:
            self.waits[item] += self.copies or last

    def _add_copies(self, after: list[int]) -> None:
        """Copy variables to where updates overwrite them."""

        def original(source: Outside) -> Outside:
            return self._source(source.device, source.value, False)

        copied = self.copying.take([s for s in self.outside if s.copied], original)
        for thread, part in enumerate(shared_out(copied, self._number_of_threads)):
            self._add(None, after, thread)
            self.copies.append(len(self._tables) - 1)
            for source in part:
                self._call_one(collectives.copy, (source.value.nbytes, source, original(source)))

    def _known(self, device: int, name: str) -> Computed:
        if name not in self.computed[device]:
            raise NotCodeError
        return self.computed[device][name]

    def _given(self, device: int, name: str) -> Computed | Outside:
        """A value that code computes, or the copy of a variable that it updates."""
        stored = self._sources.get((device, name, True))
        return self._known(device, name) if stored is None else stored

    def _ends_here(self, node: OpNode, name: str) -> bool:
        """Whether nobody but a collective reads a value of the first device in its memory."""
        plan = self._plan
        first = next(v for v in node.inputs if v.name == name and v not in plan.missing)
        if name in plan.fetch and first is plan.graph.latest(name, first.device):
            return False  # a device that does not get the sum shows its own value
        return first.readers == [node] and (first.device, name) in self._alone


@no_cycles_sought()
def items_of(
    binding: Binding, threads: int, store: CodeStore, exchange: Exchange | None = None
) -> Items:
    """The items of a binding.

    Args:
        binding: the binding that runs.
        threads: how many threads work together.
        store: where its variables lie.
        exchange: other processes that take part; None: there are none.

    Raises:
        NotCodeError: some task is not code.
    """
    plan = binding.plan
    if on_gpus(plan.graph.places):
        raise NotCodeError
    limits = row_limits(plan.nodes, plan.missing, binding.given, binding.more_rows)
    items = Items(plan, threads, limits, store, exchange)
    for task, steps in zip(plan.tasks, binding.steps, strict=True):
        if task.is_collective:
            items.take_collective(task, binding.memory)
            continue
        codes = [step.code for step in steps if isinstance(step.code, CodeRun)]
        if len(codes) < len(steps):
            raise NotCodeError
        items.take_codes(task, codes)
    items.take_gates()
    items.finish()
    return items
