"""The operators of a task while they become pieces of code, and the places of their values."""

from __future__ import annotations

import functools
import math
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.arena import places_for
from dpexec.engine.compile.regions.branch_row import emit_branch
from dpexec.engine.compile.regions.code_run import CodeMemory, CodeRun, Layout, Piece
from dpexec.engine.compile.regions.epilogues import Pair, emit_joined, joins
from dpexec.engine.compile.regions.operands import AnyValue, Brought, Operands, emitted
from dpexec.engine.compile.regions.python_row import emit_row, values_of
from dpexec.engine.compile.regions.step import Step
from dpexec.engine.compile.regions.table import CodeTable
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.sizes import Counts, at_most
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels import implementations
from dpexec.engine.kernels.lowering import Argument, Buffer, Code, Packed, Value, flat
from dpexec.engine.kernels.machine import Kernel

__all__ = ["TaskCode"]


class TaskCode:
    """The steps of one task while they become pieces of code.

    Args:
        specs: of the device's values.
        outside: names whose values are needed outside of the task.
        overwritten: names of persistable variables that are updated in place.
        limits: the most rows that sparse values have, by name.
        halves: whether products round their operands to bfloat16.
        fetched: names whose values are fetched.
        packed: variables that nobody changes, in other layouts; None: there may be none.
        ragged: whether code may have values that only a run tells the size of.
        rows: whether code may call kernels in Python.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        outside: frozenset[str],
        overwritten: Collection[str],
        limits: Mapping[str, int],
        halves: bool = False,
        fetched: Collection[str] = (),
        packed: Packed | None = None,
        ragged: bool = True,
        rows: bool = False,
    ) -> None:
        self._ragged, self._rows = ragged, rows
        self.operands = Operands(specs, overwritten, limits)
        self.outside = outside
        self.fetched = fetched
        self.code = Code(halves=halves, packed=packed)
        self.steps: list[Step] = []
        self.order: list[Step | Piece] = []
        self.open: Piece | None = None
        self.holders: dict[Buffer, list[str]] = {}  # names of the values that lie in a buffer
        self.last_read: dict[str, int] = {}
        self._needed_until: dict[Buffer, float] = {}  # the step that reads it last; or infinity
        self.inner_bytes = 0
        self.places: dict[Buffer, int] = {}  # of buffers that only this code uses
        self.lasting: dict[Buffer, int] = {}  # bytes of buffers that are needed outside
        self.numbers: dict[Buffer, int] = {}  # of the lasting buffers

    # ---- what becomes code

    def take(self, steps: Sequence[Step]) -> None:
        """Take the steps of the task."""
        self.steps = list(steps)
        for number, step in enumerate(steps):
            self.last_read.update((var.name, number) for var in step.node.inputs)
        number = 0
        while number < len(steps):
            step = steps[number]
            pair = steps[number : number + 2]
            if joins(pair, self.fetched) and self._lower_joined(pair):
                number += 1
            elif not self._lower(step, number) and not self._call_python(step):
                self._keep(step)
            number += 1

    def _keep(self, step: Step) -> None:
        """Leave a step to Python, before the open piece of code if it does not depend on that."""
        reads = {var.name for var in step.node.inputs if var.kind == "var"}
        writes = {var.name for var in step.node.outputs if var.kind == "var"}
        made = self.operands.made
        for name in reads & made.keys():
            self._keep_buffer(made[name])
        piece = self.open
        independent = (
            piece is not None
            and not reads & piece.writes
            and not writes & (piece.writes | piece.brought.keys())
        )
        if piece is not None and independent:
            piece.drops.extend(step.drops)
            self.order.insert(-1, Step(step.node, step.call))
        else:
            self.open = None
            self.order.append(step)
        for name in writes:
            made.pop(name, None)

    @staticmethod
    def _keep_buffer(value: AnyValue) -> None:
        for part in value.parts:
            if part.buffer is not None:
                part.buffer.lasting = True

    def _lower_joined(self, steps: Sequence[Step]) -> bool:
        """Let one of two operators do the work of both; False if neither can."""
        first, second = (step.node.op for step in steps)
        assert first is not None and second is not None
        brought = self._brought()
        made, out = (self.operands.outputs(op, brought) for op in (first, second))
        if made is None or out is None:
            return False
        calls = len(self.code.calls)
        if not emit_joined(self.operands, self.emit, Pair(first, second, made, out, brought)):
            return False
        self._took(steps, calls, brought, (*flat(made), *flat(out)))
        return True

    def emit(
        self,
        op: Operator,
        inputs: list[Any] | None,
        outputs: list[Any],
        **along: Any,
    ) -> bool:
        """Emit the calls of an operator with the work of its neighbour.

        Args:
            op: the operator.
            inputs: its values per slot; None if code cannot work on them.
            outputs: the values that it computes.
            along: the work of the neighbour, see :meth:`Code.along`.

        Returns:
            Whether calls were emitted.
        """
        lower = implementations.find(op.type, "code")
        if lower is None or inputs is None:
            return False
        with self.code.along(**along):
            return emitted(self.code, lower, op, inputs, outputs)

    def _lower(self, step: Step, number: int) -> bool:
        op, does = step.node.op, step.node.does
        if op is None:
            return False
        type = op.type if does.computes else does.name
        lower = implementations.find(type, "code", self.operands.are_sparse(op))
        if lower is None:
            return False
        brought = self._brought()
        ragged = lower.ragged if self._ragged else ()
        inputs = self.operands.inputs(op, brought, ragged=ragged) if does.computes else []
        if inputs is None:
            return False
        outputs = self.operands.outputs(op, brought, ragged, lower.renews)
        if outputs is None:
            return False
        first = len(self.code.calls)
        self.code.dying = {
            value.buffer
            for value in flat(inputs)
            if value.buffer is not None and self._dies(value.buffer, number)
        }
        if not emitted(self.code, lower, op, inputs, outputs):
            if len(self.code.calls) != first:
                raise AssertionError(f"the lowering of {op.type} declined too late")
            return False
        self._took([step], first, brought, flat(outputs))
        return True

    def _call_python(self, step: Step) -> bool:
        """Let a row of code call the kernel of an operator that has no lowering for its values."""
        if not self._rows:
            return False
        brought = self._brought()
        values = values_of(step.node, self.operands, brought)
        if values is None:
            return False
        first = len(self.code.calls)
        inputs = {name: self._plain(value) for name, value in values[0].items()}
        is_branch = emit_branch(self.code, step.node, self.operands.specs, inputs, values[1])
        if not is_branch and not emit_row(self.code, step, inputs, values[1]):
            return False
        self._took([step], first, brought, values[1].values())
        return True

    def _dies(self, buffer: Buffer, number: int) -> bool:
        """Whether nobody reads a buffer after a certain step of the task."""
        return not buffer.lasting and self._needed_until[buffer] <= number

    def _took(
        self,
        steps: Sequence[Step],
        first: int,
        brought: Brought,
        outputs: Iterable[AnyValue],
    ) -> None:
        if self.open is None:
            self.open = Piece(first)
            self.order.append(self.open)
        piece = self.open
        piece.brought.update(brought.maps[0])
        outputs = list(outputs)
        shown = {value.name: self._shown(value) for value in outputs if value.name in self.outside}
        piece.steps.append((list(steps), len(self.code.calls)))
        piece.drops.extend(name for step in steps for name in step.drops)
        for value in outputs:
            piece.writes.add(value.name)
            if value.buffer is None:  # a value from outside that is updated in place
                for part in value.parts:
                    self.code.changed(part)
                continue
            self.operands.made[value.name] = value
            piece.made[value.name] = published = shown.get(value.name, value)
            for part in {*value.parts, *published.parts}:
                if part.buffer is not None:
                    self._hold(part.buffer, value.name)
            if value.name in self.outside:
                self._keep_buffer(published)

    def _shown(self, value: AnyValue) -> AnyValue:
        """What others get of a value: images in the layout of their shape."""
        if value.buffer is None:
            return value
        laid = self._plain(value)
        if isinstance(laid, Value):
            self.code.make(laid)
        return laid

    def _plain(self, value: AnyValue) -> AnyValue:
        """A value in the layout of its shape."""
        return self.code.laid(value, False) if isinstance(value, Value) else value

    def _brought(self) -> Brought:
        return ChainMap({}, self.open.brought if self.open else {})

    def _hold(self, buffer: Buffer, name: str) -> None:
        """Note that a value lies in a buffer, perhaps in the place of an earlier one."""
        self.holders.setdefault(buffer, []).append(name)
        needed = math.inf if name in self.outside else self.last_read.get(name, -1)
        self._needed_until[buffer] = max(needed, self._needed_until.get(buffer, -1))

    # ---- where it lies

    def layout(self) -> int:
        """Place the buffers that only this code uses; returns the bytes that they need.

        Buffers that are needed outside of the task only get numbers.
        :mod:`dpexec.engine.compile.regions.arena` places them, as it knows how long they live.
        """
        buffers = dict.fromkeys(
            argument.buffer
            for _, arguments in self.code.calls
            for argument in arguments
            if isinstance(argument, Value) and argument.buffer is not None
        )
        # the calls also know the earlier values of names that are written twice
        everything = dict.fromkeys((*buffers, *(value.buffer for value in self._made())))
        self.lasting = {b: at_most(b.nbytes) for b in everything if b is not None and b.lasting}
        inner = [b for b in buffers if not b.lasting]
        places, self.inner_bytes = places_for(
            [(at_most(b.nbytes), (b.first, b.last)) for b in inner]
        )
        self.places = dict(zip(inner, places, strict=True))
        self.numbers = {buffer: number for number, buffer in enumerate(self.lasting)}
        for piece in self.order:
            if isinstance(piece, Piece):
                calls = self.code.calls[piece.first : piece.steps[-1][1]]
                piece.table = CodeTable(calls, self.places, self.numbers)
                piece.published = [
                    (name, value)
                    for name, value in piece.made.items()
                    if (value.buffer and value.buffer.lasting) or not value.size
                ]
        return self.inner_bytes

    @property
    def sizes(self) -> tuple[int, list[int]]:
        """The bytes that only this code uses, and the bytes of each lasting buffer."""
        return self.inner_bytes, [*self.lasting.values()]

    def alone(self, value: AnyValue) -> bool:
        """Whether no other value that is needed outside of the task shares a value's memory."""
        if value.buffer is None:
            return False
        names, outside = self._names_at.get(value.buffer, (frozenset(), frozenset()))
        return value.name in names and outside <= {value.name}

    @functools.cached_property
    def _names_at(self) -> dict[Buffer, tuple[frozenset[str], frozenset[str]]]:
        """By buffer, what lies there one after another, and what of that others need.

        A chain of operators in place has one buffer with thousands of names.
        """
        outside = frozenset(self.outside)
        return {b: (frozenset(names), outside & {*names}) for b, names in self.holders.items()}

    @property
    def plain_reads(self) -> set[str]:
        """Names of the values that steps of Python read; results of these steps may be views."""
        plain = (item for item in self.order if isinstance(item, Step))
        return {var.name for step in plain for var in step.node.inputs}

    def _made(self) -> Iterable[Value]:
        pieces = (item for item in self.order if isinstance(item, Piece))
        return (part for piece in pieces for value in piece.made.values() for part in value.parts)

    # ---- steps

    def sized(self, rows: Counts) -> dict[CodeTable, list[Any]]:
        """By table, the arguments that are made for numbers of rows, see :meth:`CodeTable.sized`.

        Args:
            rows: the numbers of rows of the device's batch.
        """
        return {table: table.sized(rows) for table in self.sized_tables}

    @functools.cached_property
    def sized_tables(self) -> list[CodeTable]:
        """The tables for which :meth:`sized` makes arguments."""
        tables = (item.table for item in self.order if isinstance(item, Piece))
        return [table for table in tables if table.made]

    def finish(
        self,
        memory: np.ndarray[Any, Any],
        inner: int,
        lasting: Sequence[int],
        steps: Sequence[Step],
        rows: Counts,
        sized: Mapping[CodeTable, Sequence[Any]],
    ) -> list[Step]:
        """The steps of a task, when there is memory for its values.

        Args:
            memory: the arena.
            inner: where the block of this code's own values begins in the arena.
            lasting: where each of the lasting buffers begins.
            steps: the steps of the task, which may be another device's task with the same code.
            rows: the numbers of rows of the device's batch, if sizes depend on them.
            sized: the result of :meth:`sized` for them.
        """
        packed = self.code.packed
        layout = Layout(self.places, self.numbers, self.alone, packed.names if packed else ())
        place = CodeMemory(layout, memory, inner, lasting, rows, sized)

        def own(step: Step) -> Step:
            return steps[self._positions[id(step.node)]]

        return [
            Step(own(item).node, own(item).call, item.drops)
            if isinstance(item, Step)
            else CodeRun(place, item, own).step(tuple(item.drops))
            for item in self.order
        ]

    def kernels(
        self, steps: Sequence[Step]
    ) -> Iterator[tuple[list[OpNode], list[tuple[Kernel, Sequence[Argument]]]]]:
        """The nodes that are code, with their calls; nodes that one kernel does come together.

        Args:
            steps: the steps of the task, which may be another device's task with the same code.
        """
        for piece in self.order:
            first = piece.first if isinstance(piece, Piece) else 0
            for done, end in piece.steps if isinstance(piece, Piece) else ():
                nodes = [steps[self._positions[id(step.node)]].node for step in done]
                yield nodes, self.code.calls[first:end]
                first = end

    @functools.cached_property
    def _positions(self) -> dict[int, int]:
        """The position of every step, by the identity of its node."""
        return {id(step.node): position for position, step in enumerate(self.steps)}
