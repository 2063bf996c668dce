"""The rounds of a block as instructions of machine code, if all its operators are code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.passing import Passed, Wait, may_pass
from dpexec.engine.compile.regions.region import Region
from dpexec.engine.compile.regions.round_region import RoundRegion
from dpexec.engine.compile.regions.slots import form_of
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.kernels import rounds as kernels
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.round_values import SLOT
from dpexec.engine.ops._iterations import Course
from dpexec.engine.ops._tables import first_name

__all__ = ["RoundProgram", "all_code"]

_COUNTER = form_of(np.dtype(np.int64), (1,))[2]
_TRUTH = form_of(np.dtype(np.bool_), (1,))[2]


class RoundProgram:
    """The instructions of a round.

    Args:
        block: the block.
        parts: its regions and operators, in order.
        course: how its rounds follow each other; the names in it are those of every run.
        found: names that a round of gradients finds among the values of the forward round.
        first: names of values whose state before the round gradients need.
        kept: names of values that gradients need.

    Attributes:
        slots: the words of all slots.
        numbers: of the slots of values, by name.
        rows: the instructions, int64 ``(n, 8)``.
        outer: names of values around the block that the rounds read or write.
        arrays: the slots of arrays of tensors.
        used, local: bytes of memory that a run took, for values and for those of a single round.
        failed: how many of the latest runs took Python.
    """

    def __init__(
        self,
        block: Block,
        parts: Sequence[Any],
        course: Course,
        found: Sequence[str],
        first: Collection[str],
        kept: Sequence[str],
    ) -> None:
        self._block = block
        self.numbers: dict[str, int] = {}
        self._more = 0
        self.used, self.local, self.failed = 0, 1 << 16, 0
        self._rows: list[list[int]] = []
        self._lists: list[Any] = []
        self.regions: dict[int, RoundRegion] = {}
        self.found, self.kept = found, kept
        self.states = {name: self._hidden() for name in course.states}
        self.totals = {name: self._hidden() for name in course.totals}
        self._owners = {name: state.zeros for name, state in course.states.items()}
        self.stacks = {name: self._hidden() for name in course.stacks}
        self.slices = {name: self._hidden() for name in course.slices}
        self._local = {*block.vars, *course.states, *course.slices, *found}
        self._escapes = self._passed(parts, course).union(kept)
        self.patches: list[tuple[int, str]] = []
        self._begin(course, first)
        for part in parts:
            self._take(part)
        self._end(course, first)
        self._finish()

    def _hidden(self) -> int:
        """A slot that no variable has."""
        self._more += 1
        return -self._more

    def slot(self, name: str) -> int:
        """The number of a value's slot; -1 for no name."""
        return self.numbers.setdefault(name, len(self.numbers)) if name else -1

    def _add(self, what: int, *words: int) -> None:
        self._rows.append([what, *words, *[0] * (kernels.WORDS - 1 - len(words))])

    def _list(self, names: Sequence[str]) -> tuple[int, int]:
        """Address and length of a list of slots."""
        made = np.array([self.slot(name) for name in names], np.int64)
        self._lists.append(made)
        return address(made), len(made)

    def _passed(self, parts: Sequence[Any], course: Course) -> set[str]:
        """Names of values that may live longer than their round."""
        ops = [part.op for part in parts if isinstance(part, Passed)]
        names = {name for op in ops for name in (*op.reads, *op.writes)}
        return names.union(state.made for state in course.states.values())

    def _is_array(self, name: str) -> bool:
        var = self._block._find_var_recursive(name)
        return var is not None and var.type == VarType.LOD_TENSOR_ARRAY

    # ---- what stands around the operators of a round

    def _begin(self, course: Course, first: Collection[str]) -> None:
        if course.until:
            self._add(kernels.UNTIL, self.slot(course.until))
        clear = len(self._rows)
        self._add(kernels.CLEAR)
        if course.forward is not None:
            self._add(kernels.LOAD, *self._list(self.found), 0)
            self.patches.append((len(self._rows) - 1, "load"))
        for name, number in self.slices.items():
            self._add(kernels.SLICE, self.slot(name), number)
            self.patches.append((len(self._rows) - 1, name))
        for name, state in course.states.items():
            without = 0 if not state.zeros else 2 if self._is_array(state.zeros) else 1
            words = self.slot(name), self.states[name], self.slot(state.zeros), without
            self._add(kernels.GIVE, *words)
        if course.keeps and first:
            self._add(kernels.SAVE, *self._list(self.kept), 0)
        self._clear = clear

    def _end(self, course: Course, first: Collection[str]) -> None:
        if course.keeps:
            later = [name for name in self.kept if name not in first]
            order = [name for name in self.kept if name in first]
            assert self.kept == [*order, *later]
            self._add(kernels.SAVE, *self._list(later), 8 * SLOT * len(order))
        for name, number in self.stacks.items():
            self._add(kernels.STACK, number, self.slot(name))
            self.patches.append((len(self._rows) - 1, ""))
        for name, number in self.totals.items():
            joins = self._is_array(name)
            self._add(kernels.JOIN if joins else kernels.ADD, number, self.slot(name))
        for name, state in course.states.items():
            stays = bool(state.zeros) and self._is_array(state.zeros)
            made = self.slot(state.made)
            self._add(kernels.TURN, self.states[name], made, stays, state.needed)

    def _finish(self) -> None:
        local = [name for name in self.numbers if name in self._local]
        self._rows[self._clear][1:3] = self._list(local)
        self.rows = np.array(self._rows, np.int64)
        shift = len(self.numbers)
        for slots in (self.states, self.totals, self.stacks, self.slices):
            slots.update((name, shift - 1 - number) for name, number in slots.items())
        for row in self.rows:
            for at in _HIDDEN.get(int(row[0]), ()):
                row[at] = shift - 1 - row[at]
        self.count = shift + self._more
        self.slots = np.zeros((self.count, SLOT), np.int64)
        for region in self.regions.values():
            region.place(self.slots)
        self.outer = [name for name in self.numbers if name not in self._local]
        hidden = {**self.totals, **{self._owners[name]: n for name, n in self.states.items()}}
        named = (*self.numbers.items(), *hidden.items())
        self.arrays = [number for name, number in named if self._is_array(name)]

    # ---- operators

    def _take(self, part: Any) -> None:
        if isinstance(part, Region):
            slots = [self.slot(name) for name in part.reads]
            keeps = {name for name in part.results if self._stays(name)}
            region = RoundRegion(part, slots, {n: self.slot(n) for n in part.results}, keeps)
            self.regions[len(self._rows)] = region
            self._add(kernels.REGION, address(region.words))
        elif isinstance(part, Passed):
            _EMITS[part.op.definition.passes.code](self, part.op)  # type: ignore[union-attr]

    def _stays(self, name: str) -> bool:
        """Whether a value may be needed after its round."""
        return name in self._escapes or name not in self._local

    def _slots_of(self, op: Operator) -> list[int]:
        passes = op.definition.passes
        assert passes is not None
        names = (first_name({**op.inputs, **op.outputs}, slot) for slot in passes.slots)
        return [self.slot("" if name == roles.EMPTY else name) for name in names]

    def _count(self, op: Operator) -> None:
        step = op.attrs.get("step", 1.0)
        self._add(kernels.COUNT, *self._slots_of(op), int(step), _COUNTER)

    def _less(self, op: Operator) -> None:
        self._add(kernels.LESS, *self._slots_of(op), _COUNTER, _TRUTH)

    def _write(self, op: Operator) -> None:
        out, x, index, lod = self._slots_of(op)
        self._add(kernels.WRITE, out, x, index, bool(op.role & roles.BACKWARD), lod)

    def _read(self, op: Operator) -> None:
        self._add(kernels.READ, *self._slots_of(op))

    def _pass(self, op: Operator) -> None:
        self._add(kernels.PASS, *self._slots_of(op))

    def _shrink(self, op: Operator) -> None:
        self._add(kernels.SHRINK, *self._slots_of(op))


_HIDDEN = {
    kernels.SLICE: (2,),
    kernels.STACK: (1,),
    kernels.GIVE: (2,),
    kernels.ADD: (1,),
    kernels.JOIN: (1,),
    kernels.TURN: (1,),
}
"""Positions of words that are slots which no variable has."""

_EMITS: dict[str, Callable[[RoundProgram, Operator], None]] = {
    "count": RoundProgram._count,
    "less": RoundProgram._less,
    "pass": RoundProgram._pass,
    "read": RoundProgram._read,
    "shrink": RoundProgram._shrink,
    "write": RoundProgram._write,
}


def all_code(parts: Sequence[Any]) -> bool:
    """Whether all parts of a block are code, or instructions that pass values on.

    Args:
        parts: the parts.
    """
    passed = [part for part in parts if not isinstance(part, Region | Wait)]
    return all(isinstance(part, Passed) and may_pass(part.op) for part in passed)
