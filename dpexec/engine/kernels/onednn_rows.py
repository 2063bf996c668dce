"""Products of oneDNN whose rows threads divide, so that each finds its own in its cache."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows, at
from dpexec.engine.kernels import onednn, onednn_calls
from dpexec.engine.kernels.divided import divided_among, in_c
from dpexec.engine.kernels.lowering import Code, Constant, Sized, Value
from dpexec.engine.kernels.machine import Count, Floats, Integers, as_word, kernel
from dpexec.engine.kernels.onednn import BIAS, DST, SCRATCHPAD, SRC, WEIGHTS, Primitive
from dpexec.engine.kernels.onednn_calls import as_before, as_the_team
from dpexec.engine.kernels.onednn_threads import by_rows
from dpexec.engine.kernels.tables import ticks

__all__ = ["Parts", "emit"]

_NEVER = 2**62
_HEAD = 3
"""Words of a part before its arguments: the primitive, its threads, the number of arguments."""


@dataclass(frozen=True)
class Parts:
    """How a product of matrices, or a batch of them, is divided.

    Args:
        rows: rows of the left matrix, or matrices; may be open.
        steps: elements of the left operand, the right one and the result that belong to a row; 0:
            the operand is the same for all.
        work: products of numbers.
        make: gives the primitive of one thread for the numbers of rows of a batch and some rows.
        fewest: rows of a part for which dividing pays.
    """

    rows: Any
    steps: tuple[Any, Any, Any]
    work: Any
    make: Callable[[Counts, int], Primitive]
    fewest: int


@kernel(parts="rows%together:out*out_step x*x_step weights*w_step @scratch*room @objects*width")
def _product(
    rows: Count, whole: Count, together: Count, x_step: Count, w_step: Count, out_step: Count,
    room: Count, width: Count, x: Floats, weights: Floats, bias: Floats, out: Floats,
    scratch: Floats, objects: Integers, of_all: Integers, awake: Integers, threads_of: Count,
    set_threads: Count, set_address: Count, run: Count, stream: Count,
) -> int:  # fmt: skip
    """Run the primitive for some rows in the calling thread, or that for all.

    Arguments: the number of rows here and in all, how many stay together, elements of a row of x,
    weights and out, numbers of temporary memory, words of a part; x, weights, bias, out, temporary
    memory; for the rows of each part and for all the primitive, its threads, the number of its
    arguments, and for each its number and memory object; where it is noted when several threads
    worked; addresses of the functions that get and set the number of threads, that set the address
    of an array and execute a primitive; the stream.
    """
    used = of_all if rows == whole else objects
    threads = in_c(threads_of)
    in_c(set_threads, used[1])
    status, n = 0, used[2]
    for i in range(n):
        number, address = used[_HEAD + 2 * i], as_word(x)
        if number == WEIGHTS:
            address = as_word(weights)
        elif number == BIAS:
            address = as_word(bias)
        elif number == DST:
            address = as_word(out)
        elif number == SCRATCHPAD:
            address = as_word(scratch)
        status |= in_c(set_address, used[_HEAD + 2 * i + 1], address)
    if status == 0:
        mode = as_the_team(awake)
        status = in_c(run, used[0], stream, n, as_word(used) + 8 * _HEAD)
        as_before(awake, mode)
    in_c(set_threads, threads)
    if used[1] > 1:
        awake[0] = ticks()
    return status


class _Objects:
    """What the library needs to run some primitives; ``int()`` is the address."""

    def __init__(self, primitives: Sequence[Primitive], wanted: Sequence[int]) -> None:
        self._kept = [(made, {n: made.memory(n) for n in wanted}) for made in primitives]
        words: list[list[Any]] = [
            [made.primitive, made.threads, len(memories), *itertools.chain(*memories.items())]
            for made, memories in self._kept
        ]
        self.array = np.array([[int(word) for word in part] for part in words], np.int64)

    def __int__(self) -> int:
        return int(self.array.ctypes.data)


class _Primitives:
    """The primitives of a call, for all numbers of rows of a batch.

    Args:
        primitive: gives that for all rows.
        parts: how it is divided.
        threads: how many there are.
        rows: the open numbers of rows.
        named: numbers of the arguments.
    """

    def __init__(
        self,
        primitive: Callable[[Counts], Primitive],
        parts: Parts,
        threads: int,
        rows: Rows | None,
        named: Iterable[int],
    ) -> None:
        self._primitive, self._parts, self._threads = primitive, parts, threads
        kept = functools.lru_cache(limit_of("primitives of a call"))
        self.own, self._objects = kept(self._own), kept(self._made)
        self.room = max(map(self._scratch, (rows.example, rows.capacity) if rows else ((),)))
        self.named = [*named, *([SCRATCHPAD] if self.room else [])]
        self.of_parts = Sized(lambda count: self._objects(count, False))
        self.of_all = Sized(lambda count: self._objects(count, True))

    def _own(self, count: Counts) -> tuple[int, Sequence[Primitive]]:
        """How many rows stay together, and the primitives of the parts."""
        parts, threads = self._parts, self._threads
        number, make = at(parts.rows, count), functools.partial(parts.make, count)
        if number < parts.fewest * threads:
            return 1, ()
        return by_rows(make(number), threads, number, make, at(parts.work, count))

    def _scratch(self, count: Counts) -> int:
        return max(made.scratch for made in (self._primitive(count), *self.own(count)[1]))

    def _made(self, count: Counts, all: bool) -> _Objects:
        if self._scratch(count) > self.room:
            raise NeedsNumber("more temporary memory than for other numbers of rows")
        return _Objects([self._primitive(count)] if all else self.own(count)[1], self.named)


def emit(
    code: Code,
    arguments: Mapping[int, Value | Constant],
    primitive: Callable[[Counts], Primitive],
    parts: Parts,
    rows: Rows | None,
) -> None:
    """Emit a product, whose rows threads divide where that gives the same bits.

    Args:
        code: takes the call.
        arguments: the arrays, by number of the argument.
        primitive: gives the primitive for the numbers of rows of a batch; all threads may work on
            it where parts would have other bits.
        parts: how it is divided.
        rows: the open numbers of rows, if the primitive depends on them.
    """
    if code.packed is None or code.threads == 1:
        onednn_calls.emit(code, arguments, primitive, rows)
        return

    threads, packed = code.threads, code.packed
    made = _Primitives(primitive, parts, threads, rows, arguments)
    numbers = made.room // 4 + 1
    calling = (
        *(parts.rows, parts.rows, Sized(lambda count: made.own(count)[0]), *parts.steps),
        *(numbers, _HEAD + 2 * len(made.named)),
        *(arguments.get(which, 0) for which in (SRC, WEIGHTS, BIAS, DST)),
        code.scratch(threads, numbers) if made.room else 0,
        *(made.of_parts, made.of_all, packed.awake),
        *(*onednn.thread_functions(), *onednn.execute_functions(), onednn.stream()),
    )
    least = Sized(lambda count: 0 if made.own(count)[1] else _NEVER)
    kernel, words = divided_among(packed, _product, calling, least)
    code.emit(kernel, *words)
