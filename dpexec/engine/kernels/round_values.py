"""Values of the rounds of a loop in machine code: counters, arrays of tensors, sums, states.

All values of a loop lie in *slots*. A slot has four words: the address of an array, its number of
rows, the bytes of a row, and the number of its form (what else there is to know of its shape and
type; odd numbers stand for float32). An array of tensors has the address of its entries, which are
slots, their number, and for how many there is room. Address 0 stands for a value that is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.kernels.collectives import USUAL
from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.machine import as_word, floats, octets, own_words
from dpexec.engine.kernels.tables import set_float_mode

__all__ = [
    "add",
    "count",
    "fill",
    "join",
    "kept",
    "less",
    "lines",
    "read",
    "room",
    "same",
    "shrink",
    "stack",
    "write",
    "zeros",
]

SLOT, STATE = 4, 16
"""Words of a slot, and of the state."""
GOES_ON, ROOM, UNUSUAL = range(3)
"""Whether an instruction is done; if not, memory is lacking, or the values need Python."""
STATUS, ROW, ROUND, LIMIT, AT, STOP, LOCAL, LOCAL_STOP, LOCAL_START, NEEDED = range(10)
"""Words of the state: why it returned; number of the instruction; number of the round, and of the
one behind the last; where free memory begins and ends; the same for memory that is free again in
the next round, and where that begins; bytes that were lacking (negative: of this memory)."""
KEPT, FURTHER, TO, OF = range(10, 14)
"""Further words of the state: where values of round 0 are kept, and how many bytes further those of
the next round are; places for addresses."""
_LINE = 64


@inline
def lines(nbytes: int) -> int:
    """Bytes of the lines of memory that an array takes."""
    return (nbytes + _LINE - 1) // _LINE * _LINE


@inline
def room(state: Any, nbytes: int, which: int) -> int:
    """Memory for an array; 0 if there is too little."""
    begin = state[which]
    end = begin + lines(nbytes)
    if end > state[which + 1]:
        state[NEEDED] = -lines(nbytes) if which == LOCAL else lines(nbytes)
        return 0
    state[which] = end
    return begin


@inline
def same(slots: Any, out: int, x: int) -> None:
    """Let a slot stand for the value of another one; no array is copied."""
    for i in range(SLOT):
        slots[SLOT * out + i] = slots[SLOT * x + i]


@inline
def fill(slot: Any, address: int, rows: int, width: int, form: int) -> int:
    """Write the four words of a slot; returns that the instruction is done."""
    slot[0], slot[1], slot[2], slot[3] = address, rows, width, form
    return GOES_ON


@inline
def _number(slots: Any, slot: int) -> int:
    """The first number of an array of int64."""
    return own_words(slots[SLOT * slot])[0]


@inline
def _move(state: Any, to: int, source: int, nbytes: int) -> None:
    """Copy bytes."""
    state[TO], state[OF] = to, source
    out, x = octets(as_word(state), TO), octets(as_word(state), OF)
    for i in range(nbytes):
        out[i] = x[i]


@inline
def _increase(state: Any, to: int, source: int, nbytes: int) -> None:
    """Add float32 numbers to others with the bits of NumPy, which keeps denormal numbers."""
    before = set_float_mode(np.int32(USUAL))
    state[TO], state[OF] = to, source
    out, x = floats(as_word(state), TO), floats(as_word(state), OF)
    for i in range(nbytes // 4):
        out[i] += x[i]
    set_float_mode(before)


@inline
def zeros(state: Any, slots: Any, out: int, like: int) -> int:
    """Zeros like another array."""
    rows, width = slots[SLOT * like + 1], slots[SLOT * like + 2]
    if slots[SLOT * like] == 0:
        return UNUSUAL
    place = room(state, rows * width, AT)
    if place == 0:
        return ROOM
    state[TO] = place
    made = octets(as_word(state), TO)
    for i in range(rows * width):
        made[i] = 0
    slot = own_words(as_word(slots) + 8 * SLOT * out)
    return fill(slot, place, rows, width, slots[SLOT * like + 3])


@inline
def kept(slots: Any, which: Any, n: int, place: int, save: int) -> int:
    """Keep values of slots, or take those that were kept."""
    there = own_words(place)
    for k in range(n):
        for i in range(SLOT):
            if save:
                there[SLOT * k + i] = slots[SLOT * which[k] + i]
            else:
                slots[SLOT * which[k] + i] = there[SLOT * k + i]
    return GOES_ON


@inline
def read(state: Any, slots: Any, row: Any) -> int:
    """An entry of an array of tensors, or zeros."""
    out, array, index, like, lod = row[1], row[2], row[3], row[4], row[5]
    if slots[SLOT * array] == 0 or slots[SLOT * index] == 0:
        return UNUSUAL
    if lod >= 0:
        fill(own_words(as_word(slots) + 8 * SLOT * lod), as_word(slots), 0, 8, 0)
    number = _number(slots, index)
    if 0 <= number < slots[SLOT * array + 1]:
        entry = own_words(slots[SLOT * array] + 8 * SLOT * number)
        if entry[0] != 0:
            for i in range(SLOT):
                slots[SLOT * out + i] = entry[i]
            return GOES_ON
    return UNUSUAL if like < 0 else zeros(state, slots, out, like)


@inline
def _grow(state: Any, array: Any, number: int) -> int:
    """Room for an entry."""
    if number >= array[2]:
        most = max(2 * array[2], number + 1, 8)
        place = room(state, 8 * SLOT * most, AT)
        if place == 0:
            return ROOM
        entries, before = own_words(place), own_words(array[0])
        for i in range(SLOT * most):
            entries[i] = before[i] if i < SLOT * array[1] else 0
        array[0], array[2] = place, most
    return GOES_ON


@inline
def _store(state: Any, array: Any, x: Any, number: int, adds: int) -> int:
    """An entry becomes an array, or their sum."""
    status = _grow(state, array, number)
    if status != GOES_ON:
        return status
    entry = own_words(array[0] + 8 * SLOT * number)
    if adds and number < array[1] and entry[0] != 0:
        if not x[3] & 1 or entry[1] != x[1] or entry[3] != x[3]:
            return UNUSUAL
        place = room(state, x[1] * x[2], AT)
        if place == 0:
            return ROOM
        _move(state, place, x[0], x[1] * x[2])
        _increase(state, place, entry[0], x[1] * x[2])
        entry[0] = place
    else:
        for i in range(SLOT):
            entry[i] = x[i]
    array[1] = max(array[1], number + 1)
    return GOES_ON


@inline
def write(state: Any, slots: Any, row: Any) -> int:
    """An array of tensors with another entry."""
    out, x, index, adds, lod = row[1], row[2], row[3], row[4], row[5]
    if lod >= 0 and slots[SLOT * lod + 1] != 0:
        return UNUSUAL
    if slots[SLOT * x] == 0 or slots[SLOT * index] == 0:
        return UNUSUAL
    number = _number(slots, index)
    if number < 0:
        return UNUSUAL
    start = as_word(slots)
    array, value = own_words(start + 8 * SLOT * out), own_words(start + 8 * SLOT * x)
    return _store(state, array, value, number, adds)


@inline
def count(state: Any, slots: Any, row: Any) -> int:
    """A counter, increased."""
    out, x, step, form = row[1], row[2], row[3], row[4]
    slot = own_words(as_word(slots) + 8 * SLOT * out)
    if slots[SLOT * x] == 0 or slots[SLOT * x + 1] != 1 or slots[SLOT * x + 3] != form:
        return UNUSUAL
    place = room(state, 8, AT)
    if place == 0:
        return ROOM
    own_words(place)[0] = _number(slots, x) + step
    return fill(slot, place, 1, 8, form)


@inline
def less(state: Any, slots: Any, row: Any) -> int:
    """Whether one counter is less than another one."""
    out, x, y, numbers, truths = row[1], row[2], row[3], row[4], row[5]
    for slot in (x, y):
        if slots[SLOT * slot] == 0 or slots[SLOT * slot + 1] != 1:
            return UNUSUAL
        if slots[SLOT * slot + 3] != numbers:
            return UNUSUAL
    place = room(state, 1, AT)
    if place == 0:
        return ROOM
    state[TO] = place
    octets(as_word(state), TO)[0] = 1 if _number(slots, x) < _number(slots, y) else 0
    return fill(own_words(as_word(slots) + 8 * SLOT * out), place, 1, 1, truths)


@inline
def shrink(slots: Any, row: Any) -> int:
    """The first rows, or sequences, of an array: those that go on."""
    out, x, table, index, lod, out_lod = row[1], row[2], row[3], row[4], row[5], row[6]
    if slots[SLOT * x] == 0 or slots[SLOT * table] == 0 or slots[SLOT * index] == 0:
        return UNUSUAL
    step, running = max(_number(slots, index), 0), 0
    if step < slots[SLOT * table + 1]:
        running = own_words(slots[SLOT * table])[step]
    rows = min(running, slots[SLOT * x + 1])
    if lod >= 0 and slots[SLOT * lod + 1] != 0:
        offsets = own_words(slots[SLOT * lod])
        if running >= slots[SLOT * lod + 1] or offsets[0] != 0 or out_lod < 0:
            return UNUSUAL
        same(slots, out_lod, lod)
        slots[SLOT * out_lod + 1] = running + 1
        rows = offsets[running]
    elif out_lod >= 0:
        fill(own_words(as_word(slots) + 8 * SLOT * out_lod), as_word(slots), 0, 8, 0)
    same(slots, out, x)
    slots[SLOT * out + 1] = rows
    return GOES_ON


@inline
def stack(state: Any, slots: Any, out: int, x: int, step: int, steps: int) -> int:
    """Store the value of a step."""
    if slots[SLOT * x] == 0:
        return UNUSUAL
    nbytes = slots[SLOT * x + 1] * slots[SLOT * x + 2]
    if slots[SLOT * out] == 0:
        place = room(state, steps * nbytes, AT)
        if place == 0:
            return ROOM
        same(slots, out, x)
        slots[SLOT * out] = place
    for i in range(1, SLOT):
        if slots[SLOT * out + i] != slots[SLOT * x + i]:
            return UNUSUAL
    _move(state, slots[SLOT * out] + step * nbytes, slots[SLOT * x], nbytes)
    return GOES_ON


@inline
def add(state: Any, slots: Any, total: int, x: int) -> int:
    """Add a gradient to the sum of earlier rounds."""
    if slots[SLOT * x] == 0:
        return GOES_ON
    nbytes = slots[SLOT * x + 1] * slots[SLOT * x + 2]
    if slots[SLOT * total] == 0:
        place = room(state, nbytes, AT)
        if place == 0:
            return ROOM
        _move(state, place, slots[SLOT * x], nbytes)
        same(slots, total, x)
        slots[SLOT * total] = place
        return GOES_ON
    form = slots[SLOT * x + 3]
    if not form & 1 or form != slots[SLOT * total + 3]:
        return UNUSUAL
    if slots[SLOT * x + 1] != slots[SLOT * total + 1]:
        return UNUSUAL
    _increase(state, slots[SLOT * total], slots[SLOT * x], nbytes)
    return GOES_ON


@inline
def join(state: Any, slots: Any, total: int, x: int) -> int:
    """Add an array of gradients to that of earlier rounds, which has none of its entries."""
    start = as_word(slots)
    array, more = own_words(start + 8 * SLOT * total), own_words(start + 8 * SLOT * x)
    if more[0] == 0:
        return GOES_ON
    if more[1] > 0:
        status = _grow(state, array, more[1] - 1)
        if status != GOES_ON:
            return status
    for number in range(min(more[1], array[1])):
        place = 8 * SLOT * number
        if own_words(more[0] + place)[0] != 0 and own_words(array[0] + place)[0] != 0:
            return UNUSUAL
    for number in range(more[1]):
        entry = own_words(more[0] + 8 * SLOT * number)
        if entry[0] != 0:
            _store(state, array, entry, number, 0)
    array[1] = max(array[1], more[1])
    return GOES_ON
