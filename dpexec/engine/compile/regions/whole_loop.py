"""All rounds of a loop as one call of machine code, where all operators of its block are code."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.bodies import Body
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.round_program import RoundProgram, all_code
from dpexec.engine.compile.regions.slots import KeptRounds, Places, Unusual, form_of, words_at
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir.block import Block
from dpexec.engine.kernels import round_values as words
from dpexec.engine.kernels import rounds as kernels
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.tables import run
from dpexec.engine.kernels.together import Aside
from dpexec.engine.ops._iterations import Course, Ran

__all__ = ["LoopBlock", "WholeLoop"]

_code = Aside(kernels.rounds)

_LEAST, _MOST, _KEPT = 1 << 16, 1 << 18, 1 << 24
"""Bytes of a chunk of memory: at least, and usually at most in loops that keep little or all of a
round."""
_TRIES = 8
"""How many times in a row values may be such that only Python handles them."""
_SMALL = 64
"""Bytes of values that are copied, so that they keep no chunk of memory alive."""
_ROUNDS = 64, 4096
"""After how many rounds, at first and at most, Python has a look."""


@dataclass
class LoopBlock:
    """A block, and which of its values are needed after a round.

    Args:
        block: the block.
        parts: its regions and operators, in order.
        outer: names of values around it that it writes.
        first: names of values whose state before the round gradients need.
        counters: names of counters, of which gradients need nothing.
        random: whether it draws random numbers.
    """

    block: Block
    parts: Sequence[Any]
    outer: Sequence[str]
    first: Sequence[str]
    counters: Sequence[str]
    random: bool
    _kinds: dict[str, VarType | None] = field(default_factory=dict)

    def kept(self, course: Course) -> list[str]:
        """Names of the values of a round that gradients need.

        Raises:
            Unusual: one is an array of tensors.
        """
        readers = [b for b in self.block.program.blocks if b.forward_block_idx == self.block.idx]
        sought = {name for reader in readers for op in reader.ops for name in op.reads}
        written = {name for op in self.block.ops for name in op.writes}
        there = {*written, *course.states, *course.slices, *self.outer}.difference(self.counters)
        chosen = {name for name in there if name in sought or name in self.outer}
        kinds = {name: self.kind(name) for name in chosen}
        if any(kinds[n] == VarType.LOD_TENSOR_ARRAY for n in chosen & sought):
            raise Unusual
        later = sorted(n for n in chosen if kinds[n] != VarType.LOD_TENSOR_ARRAY)
        first = [name for name in self.first if name in later]
        return [*first, *(name for name in later if name not in first)]

    def kind(self, name: str) -> VarType | None:
        """The type of a variable.

        Args:
            name: its name; None is the type of what is none.
        """
        if name not in self._kinds:
            var = self.block._find_var_recursive(name)
            self._kinds[name] = None if var is None else var.type
        return self._kinds[name]


class WholeLoop:
    """Runs the rounds of a block as machine code.

    Args:
        body: the block, its operators and regions.
    """

    def __init__(self, body: Body) -> None:
        about = body.outer, body.first, body.counters, body.draws
        self._block = block = LoopBlock(body.block, body.parts, *about)
        self._is_code = not block.random and all_code(block.parts)
        self._programs: dict[Any, RoundProgram | None] = {}

    def run(self, env: Env, course: Course) -> Ran | None:
        """Run all rounds; None, and nothing is done, if that takes Python.

        Args:
            env: the values around the block; gets new values of those that the rounds write.
            course: how the rounds follow each other.
        """
        if not self._is_code or env.record is not None:
            return None
        forward = course.forward
        if forward is not None and not isinstance(forward, KeptRounds):
            return None
        program = self._program(course, forward)
        if program is None or program.failed > _TRIES or not _code.at_hand:
            return None
        try:
            ran = _Run(program, self._block, env, course).result()
        except Unusual:
            program.failed += 1
            return None
        program.failed = 0
        return ran

    def _program(self, course: Course, forward: KeptRounds | None) -> RoundProgram | None:
        found = None if forward is None else (*forward.names,)
        key = found, course.keeps, *map(tuple, (course.states, course.slices))
        key = *key, *map(tuple, (course.stacks, course.totals))
        if key not in self._programs:
            try:
                self._programs[key] = self._made(course, found or ())
            except Unusual:
                self._programs[key] = None
        return self._programs[key]

    def _made(self, course: Course, found: Sequence[str]) -> RoundProgram:
        block = self._block
        if course.keeps and course.forward is not None:
            raise Unusual
        kept = block.kept(course) if course.keeps else []
        first = [name for name in block.first if name in kept]
        return RoundProgram(block.block, block.parts, course, found, first, kept)


class _Run:
    """A run of the rounds.

    Args:
        program: their instructions.
        block: the block.
        env: the values around it.
        course: how they follow each other.
    """

    def __init__(self, program: RoundProgram, block: LoopBlock, env: Env, course: Course) -> None:
        self._program, self._block, self._env, self._course = program, block, env, course
        self._chunks: list[tuple[int, int, np.ndarray[Any, Any]]] = []
        self._places = Places(self._chunks)
        self._state = np.zeros(words.STATE, np.int64)
        self._used = 0
        self._fill_slots()
        self._patch()
        self._kept = np.zeros((0, len(program.kept), words.SLOT), np.int64)
        self._state[words.LIMIT] = 0 if course.until else course.rounds
        self._room_for_rounds()
        self._chunk(program.used if course.keeps else min(program.used, _MOST))
        self._local(program.local)

    def _fill_slots(self) -> None:
        program, slots, find = self._program, self._program.slots, self._env.find
        slots[:] = 0
        for name in program.outer:
            slots[program.numbers[name]] = self._places.words(find(name))
        for name, number in program.states.items():
            slots[number] = self._places.words(self._course.states[name].first)
        for name, number in program.slices.items():
            array = self._course.slices[name]
            found = self._places.words(array)
            if len(array) != self._course.rounds or array.ndim < 2 or not array.size:
                raise Unusual
            slots[number] = found[0], len(array), array.nbytes // len(array), 0
        self._before = slots.copy()

    def _patch(self) -> None:
        """Write the numbers of this run into the instructions."""
        course, forward = self._course, self._course.forward
        for row, name in self._program.patches:
            words_of = self._program.rows[row]
            if words_of[0] == kernels.LOAD:
                assert isinstance(forward, KeptRounds)
                if forward.backwards == course.backwards:
                    raise Unusual
                words_of[3:5] = address(forward.slots), len(forward)
                self._state[words.FURTHER] = 8 * words.SLOT * len(forward.names)
            elif words_of[0] == kernels.SLICE:
                array = course.slices[name]
                words_of[3] = course.rounds if course.backwards else 0
                words_of[4:7] = form_of(array.dtype, array.shape[1:])
            else:
                words_of[3:5] = course.rounds, course.backwards

    def _room_for_rounds(self) -> None:
        """Memory for what is kept of further rounds."""
        state, course = self._state, self._course
        if course.until:
            more = min(max(_ROUNDS[0], int(state[words.LIMIT])), _ROUNDS[1])
            state[words.LIMIT] += more
        if not course.keeps:
            return
        before = self._kept
        self._kept = np.zeros((int(state[words.LIMIT]), *before.shape[1:]), np.int64)
        self._kept[: len(before)] = before
        state[words.KEPT] = address(self._kept)
        state[words.FURTHER] = 8 * words.SLOT * before.shape[1]

    def _chunk(self, nbytes: int) -> None:
        """More memory for values."""
        nbytes = max(nbytes, _LEAST) + 64
        memory = np.empty(nbytes, np.uint8)
        start = address(memory)
        self._used += nbytes
        self._chunks.append((start, start + nbytes, memory))
        self._state[words.AT] = -(-start // 64) * 64
        self._state[words.STOP] = start + nbytes

    def _local(self, nbytes: int) -> None:
        """More memory for values of a single round."""
        memory = np.empty(nbytes + 64, np.uint8)
        self._chunks.append((address(memory), address(memory) + nbytes + 64, memory))
        start = -(-address(memory) // 64) * 64
        self._state[words.LOCAL : words.LOCAL_START + 1] = start, start + nbytes, start

    def result(self) -> Ran:
        """Run the rounds.

        Raises:
            Unusual: they take Python.
        """
        program, state = self._program, self._state
        arrays = state, program.slots, program.rows
        arguments = np.array([*map(address, arrays), len(program.rows)], np.int64)
        table = np.array([[kernels.rounds.address, address(arguments)]], np.int64)
        while True:
            if self._env.go_on is not None:
                self._env.go_on()
            run(address(table), 0, 1)
            status = int(state[words.STATUS])
            if status == kernels.OVER or (status == kernels.ENDED and not self._course.until):
                return self._results()
            if status == kernels.ENDED:
                self._room_for_rounds()
            elif status == kernels.SIZES:
                program.regions[int(state[words.ROW])].learn()
            elif status == words.ROOM:
                self._more_room(int(state[words.NEEDED]))
            else:
                raise Unusual

    def _more_room(self, needed: int) -> None:
        if needed < 0:
            self._program.local = max(2 * self._program.local, 2 * -needed)
            self._local(self._program.local)
            return
        keeps = self._course.keeps
        if not keeps:
            self._free()
        self._chunk(max(needed, min(self._used, _KEPT if keeps else _MOST)))

    def _free(self) -> None:
        """Free chunks in which no value lies."""
        live = sorted([*self._addresses(), int(self._state[words.LOCAL_START])])
        self._chunks[:] = [
            chunk
            for chunk in self._chunks
            if bisect_left(live, chunk[0]) < bisect_left(live, chunk[1])
        ]

    def _addresses(self) -> list[int]:
        """Addresses of all values, and of entries of arrays of tensors."""
        slots = self._program.slots
        found: list[int] = slots[:, 0].tolist()
        for place, count, *_ in slots[self._program.arrays].tolist():
            found += words_at(place, words.SLOT * count)[:: words.SLOT].tolist()
        return found

    # ---- what comes out

    def _results(self) -> Ran:
        program, course = self._program, self._course
        program.used = self._used - int(self._state[words.STOP] - self._state[words.AT])
        slots = program.slots.tolist()
        for name in self._block.outer:
            number = program.numbers.get(name)
            if number is not None and self._is_new(number, slots[number]):
                self._env[name] = self._value(name, slots[number])
        kept: Any = ()
        if course.keeps:
            made = self._kept[: int(self._state[words.ROUND])]
            kept = KeptRounds(program.kept, made, self._places, course.backwards)
        states = {
            n: self._value(course.states[n].zeros or n, slots[k]) for n, k in program.states.items()
        }
        return Ran(
            kept,
            states,
            {name: self._stacked(slots[number]) for name, number in program.stacks.items()},
            {name: self._value(name, slots[number]) for name, number in program.totals.items()},
        )

    def _is_new(self, number: int, slot: Sequence[int]) -> bool:
        """Whether the rounds wrote a slot; entries of arrays of tensors change in their places."""
        rewritten = number in self._program.arrays and self._state[words.ROUND] > 0
        return bool(rewritten) or slot != self._before[number].tolist()

    def _value(self, name: str, slot: Sequence[int]) -> Any:
        """What Python sees of a slot; None if there is no value."""
        if not slot[0]:
            return None
        kind = self._block.kind(name)
        if kind == VarType.LOD_TENSOR_ARRAY:
            return self._places.entries(slot)
        if kind == VarType.RAW:
            return self._places.offsets(slot)
        array = self._places.array(slot)
        return array.copy() if array.nbytes <= _SMALL else array

    def _stacked(self, slot: Sequence[int]) -> Any:
        """The values of all steps as one array."""
        return self._places.stacked(slot, self._course.rounds)
