"""Rounds of a loop in machine code: instructions on slots, among them calls of regions.

A round is a list of instructions of eight words: what to do, then slots and numbers
(:mod:`dpexec.engine.kernels.round_values` does what is to be done with values). Where Python is
needed, for memory or for code of new sizes, :func:`rounds` returns and says why. It goes on at the
same instruction, since an instruction changes nothing before it can do all of its work.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.kernels.compiling import inline
from dpexec.engine.kernels.machine import Count, Integers, as_word, call, kernel, octets, own_words
from dpexec.engine.kernels.round_values import (
    AT,
    FURTHER,
    GOES_ON,
    KEPT,
    LIMIT,
    LOCAL,
    LOCAL_START,
    ROOM,
    ROUND,
    ROW,
    SLOT,
    STATUS,
    UNUSUAL,
    add,
    count,
    fill,
    join,
    kept,
    less,
    lines,
    read,
    room,
    same,
    shrink,
    stack,
    write,
    zeros,
)

__all__ = ["rounds"]

WORDS = 8
"""Words of an instruction."""
UNTIL, CLEAR, LOAD, SAVE, READ, WRITE, COUNT, LESS, PASS, SHRINK, REGION = range(11)
"""Instructions: end the loop if a condition is false; forget what a round made; take values that
were kept; keep values; read or write an entry of an array of tensors; count; compare counters; pass
a value on; take the first rows; call the code of a region."""
SLICE, STACK, GIVE, ADD, JOIN, TURN = range(11, 17)
"""More instructions: take a step of an array; store one; give a state to the round; add up a
gradient; add up an array of gradients; take a state from the round."""
REFUSED, SIZES, ENDED, OVER = range(3, 7)
"""Why it returns, besides the reasons of values: a kernel refused its values; code for sizes is
lacking; all rounds that were asked for are done; the condition is false."""


@inline
def _found(slots: Any, region: Any) -> int:
    """Address of what is known of a region for the sizes of its inputs; 0: nothing."""
    known, inputs, at = region[0], region[3], region[2]
    for _ in range(known):
        key = own_words(region[1] + 8 * at * (2 * inputs + 1))
        i = 0
        while i < inputs:
            slot = SLOT * region[7 + i]
            if key[2 * i] != slots[slot + 1] or key[2 * i + 1] != slots[slot + 3]:
                break
            i += 1
        if i == inputs:
            region[2] = at
            return key[2 * inputs]
        at = 0 if at + 1 >= known else at + 1
    return 0


@inline
def _region(state: Any, slots: Any, region: Any) -> int:
    """Call the code of a region.

    A region has: number of known sizes, these, number of the latest; number of inputs; address of
    :func:`~dpexec.engine.kernels.deferred.play`, its arguments, addresses of results; slots of the
    inputs. For a size is known: forms of the inputs, and an address of the first two arguments;
    number of buffers, for each its bytes and whether nobody needs it after the round; number of
    results, for each slot, buffer, rows, bytes of a row and form.
    """
    for i in range(region[3]):
        if slots[SLOT * region[7 + i]] == 0:
            return UNUSUAL
    place = _found(slots, region)
    if place == 0:
        return SIZES
    known, arguments = own_words(place), own_words(region[5])
    made, arrays = known[2], own_words(region[6])
    for which in (AT, LOCAL):  # room for all, or for none
        wanted = 0
        for i in range(made):
            if known[4 + 2 * i] == (which == LOCAL):
                wanted += lines(known[3 + 2 * i])
        begin = room(state, wanted, which)
        if begin == 0:
            return ROOM
        state[which] = begin
    for i in range(made):
        arrays[i] = room(state, known[3 + 2 * i], LOCAL if known[4 + 2 * i] else AT)
    arguments[0], arguments[1] = known[0], known[1]
    if call(region[4], as_word(arguments)) != 0:
        return REFUSED
    results = own_words(place + 8 * (4 + 2 * made))
    for i in range(known[3 + 2 * made]):
        number = results[5 * i + 1]
        array = arrays[number] if number >= 0 else place
        slot = own_words(as_word(slots) + 8 * SLOT * results[5 * i])
        fill(slot, array, results[5 * i + 2], results[5 * i + 3], results[5 * i + 4])
    return GOES_ON


@inline
def _end(slots: Any, row: Any) -> int:
    """Whether the loop ends."""
    if slots[SLOT * row[1]] == 0:
        return UNUSUAL
    return GOES_ON if octets(as_word(slots), SLOT * row[1])[0] else OVER


@inline
def _clear(state: Any, slots: Any, row: Any) -> int:
    """Forget the values of the round before."""
    which = own_words(row[1])
    for i in range(row[2]):
        for k in range(SLOT):
            slots[SLOT * which[i] + k] = 0
    state[LOCAL] = state[LOCAL_START]
    return GOES_ON


@inline
def _pass(state: Any, slots: Any, row: Any) -> int:
    """A value under another name, or zeros."""
    out, x, like = row[1], row[2], row[3]
    if x >= 0 and slots[SLOT * x] != 0:
        same(slots, out, x)
        return GOES_ON
    return UNUSUAL if like < 0 else zeros(state, slots, out, like)


@inline
def _slice(slots: Any, row: Any, number: int) -> int:
    """The values of a step."""
    array = SLOT * row[2]
    step = row[3] - 1 - number if row[3] else number
    place = own_words(as_word(slots) + 8 * SLOT * row[1])
    return fill(place, slots[array] + step * slots[array + 2], row[4], row[5], row[6])


@inline
def _give(state: Any, slots: Any, row: Any) -> int:
    """A state before the round; without one nothing, zeros, or an array without entries."""
    slot, state_slot, like, without = row[1], row[2], row[3], row[4]
    if slots[SLOT * state_slot] != 0:
        same(slots, slot, state_slot)
    elif without == 1:
        return zeros(state, slots, slot, like)
    elif without == 2:
        fill(own_words(as_word(slots) + 8 * SLOT * slot), as_word(slots), 0, 0, 0)
    return GOES_ON


@inline
def _turn(slots: Any, row: Any) -> int:
    """The state after the round; an array of tensors that no operator wrote stays."""
    state_slot, made, stays, needed = row[1], row[2], row[3], row[4]
    if made >= 0 and slots[SLOT * made] != 0:
        same(slots, state_slot, made)
    elif made >= 0 and needed:
        return UNUSUAL
    elif not stays:
        slots[SLOT * state_slot] = 0
    return GOES_ON


@inline
def _of_loop(state: Any, slots: Any, row: Any) -> int:
    """Do an instruction at the begin or the end of a round."""
    what, number = row[0], state[ROUND]
    if what == UNTIL:
        return _end(slots, row)
    if what == CLEAR:
        return _clear(state, slots, row)
    if what in (LOAD, SAVE):
        step = row[4] - 1 - number if row[4] else number
        place = row[3] + state[KEPT] + step * state[FURTHER]
        return kept(slots, own_words(row[1]), row[2], place, what == SAVE)
    if what == SLICE:
        return _slice(slots, row, number)
    if what == STACK:
        step = row[3] - 1 - number if row[4] else number
        return stack(state, slots, row[1], row[2], step, row[3])
    if what == GIVE:
        return _give(state, slots, row)
    if what == ADD:
        return add(state, slots, row[1], row[2])
    if what == JOIN:
        return join(state, slots, row[1], row[2])
    return _turn(slots, row)


@inline
def _of_operator(state: Any, slots: Any, row: Any) -> int:
    """Do an instruction that stands for operators."""
    what = row[0]
    if what == REGION:
        return _region(state, slots, own_words(row[1]))
    if what == READ:
        return read(state, slots, row)
    if what == WRITE:
        return write(state, slots, row)
    if what == COUNT:
        return count(state, slots, row)
    if what == LESS:
        return less(state, slots, row)
    if what == SHRINK:
        return shrink(slots, row)
    return _pass(state, slots, row)


@kernel
def rounds(state: Integers, slots: Integers, instructions: Integers, n: Count) -> int:
    """Go through rounds until there is a reason to return, which the state then has."""
    status = GOES_ON
    while status == GOES_ON:
        if state[ROW] == 0 and state[ROUND] >= state[LIMIT]:
            status = ENDED
        elif state[ROW] == n:
            state[ROW] = 0
            state[ROUND] += 1
        else:
            row = own_words(as_word(instructions) + 8 * WORDS * state[ROW])
            if READ <= row[0] <= REGION:
                status = _of_operator(state, slots, row)
            else:
                status = _of_loop(state, slots, row)
            if status == GOES_ON:
                state[ROW] += 1
    state[STATUS] = status
    return 0
