"""A team of threads that runs the pieces of code of a step, without the GIL.

A *schedule* is a list of items. An item is a table of (kernel, arguments) for :func:`tables.run`,
with the numbers of the items that must end before it. A free thread takes the first item that is
ready; results do not depend on which thread runs which item. The leading thread opens the schedule
on the team's *board*, works until all items are done, and closes it. The other threads wait at the
board for a schedule and work on it. They wait by spinning, for a bounded number of turns, as waking
a thread takes longer (about 0.05 ms) than most gaps.

Items may also wait for other processes, by *words* in shared memory. The wait is over when the word
is at least the number of the step.

The board has two words: the address of the schedule's header (0: none is open), and the number of
threads working on it. The header has these fields:

- the number of items, and the address of the items; an item holds the address of its table, the
  number of rows, first and last of its waits, the thread that looks at it first, where it writes
  its notes, and first and last of its words
- the addresses of the waits and of the states
- the number, from 1, of the item that rejected its values (0: none)
- the address of the notes (0: not recorded), and the bytes by which it advances after each run
- the addresses of the words' addresses, of the step's number, and of the words that items lacked
  last, by their addresses

The notes of an item are the thread that ran it, the word that it lacked last (0: none), and the
stamps of :func:`tables.run_timed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dpexec.engine.kernels.atomics import increase, load, pause, store, take, wait_politely
from dpexec.engine.kernels.compiling import called, entry
from dpexec.engine.kernels.machine import count, integers
from dpexec.engine.kernels.stamps import HEAD, width
from dpexec.engine.kernels.tables import run, run_timed

__all__ = ["Schedule", "join"]

_WAITING, _DONE = 0, 2  # states of an item; 1: a thread has taken it
_SCHEDULE, _AT_WORK = 0, 8  # positions of the board's words, in bytes
_COUNT, _ITEMS, _WAITS, _STATES, _REFUSED, _NOTES, _ADVANCE, _WORDS, _TURN, _LACKED = range(10)
"""Positions of the header's fields, in words."""
_TABLE, _ROWS, _FIRST_WAIT, _LAST_WAIT, _THREAD, _AT, _FIRST_WORD, _LAST_WORD = range(8)
"""Positions of an item's fields, in words."""
_FIELDS = 8
_STOPPED = -1


@called()
def _ready(header: int, number: int) -> bool:
    """Whether an item is not taken yet, and everything that it waits for is done."""
    items, waits = integers(header, _ITEMS), integers(header, _WAITS)
    states = count(header, _STATES)
    if load(states + 8 * number) != _WAITING:
        return False
    item = number * _FIELDS
    for index in range(items[item + _FIRST_WAIT], items[item + _LAST_WAIT]):
        if load(states + 8 * waits[index]) != _DONE:
            return False
    words = integers(header, _WORDS)
    for index in range(items[item + _FIRST_WORD], items[item + _LAST_WORD]):
        if load(words[index]) < count(count(header, _TURN), 0):
            lacked = count(header, _LACKED) + 8 * number
            if load(lacked) != words[index]:
                store(lacked, words[index])
            return False
    return True


@called()
def _next(header: int, first: int, thread: int) -> int:
    """The first item that is ready, preferably one meant for this thread; -1 if none is."""
    items, found = integers(header, _ITEMS), -1
    for number in range(first, count(header, _COUNT)):
        if _ready(header, number):
            if items[number * _FIELDS + _THREAD] == thread:
                return number
            found = number if found < 0 else found
    return found


@called()
def _run_item(header: int, number: int, thread: int) -> bool:
    """Run an item; False if it rejected its values."""
    item = count(header, _ITEMS) + 8 * _FIELDS * number
    rows = count(item, _ROWS)
    table = count(item, _TABLE)
    if count(header, _NOTES) == 0:
        return run(table, 0, rows) == rows
    at = count(item, _AT)
    notes = integers(header, _NOTES)
    notes[at] = thread
    notes[at + 1] = load(count(header, _LACKED) + 8 * number)
    return run_timed(table, 0, rows, count(header, _NOTES), at + HEAD) == rows


@called()
def _work(header: int, thread: int, patience: int) -> int:
    """Work on items; 1 when all are done or one was refused, 0 when none was ready for long."""
    states = count(header, _STATES)
    first, idle = 0, 0
    while idle < patience:
        while first < count(header, _COUNT) and load(states + 8 * first) == _DONE:
            first += 1
        if first == count(header, _COUNT) or load(header + 8 * _REFUSED) != 0:
            return 1
        number = _next(header, first, thread)
        if number >= 0 and take(states + 8 * number) == _WAITING:
            if _run_item(header, number, thread):
                store(states + 8 * number, _DONE)
            else:  # it is not marked as done, so that no item that waits for it starts
                store(header + 8 * _REFUSED, number + 1)
            idle = 0
        elif count(header, _TURN) != 0:
            idle = wait_politely(idle)
        else:
            pause()
            idle += 1
    return 0


@called()
def _close(board: int, header: int, patience: int) -> int:
    """Close a schedule that is done; 0 if a thread goes on working on it for long."""
    store(board + _SCHEDULE, 0)
    idle = 0
    while load(board + _AT_WORK) != 0:
        if idle == patience:
            return 0
        pause()
        idle += 1
    if count(header, _NOTES) != 0:
        increase(header + 8 * _NOTES, count(header, _ADVANCE))
    return 1


@entry
def join(board: int, header: int, thread: int, patience: int) -> int:
    """Lead the work on a schedule, or help with the schedules that others open.

    Both are one function, since what they have in common takes half a second to compile.

    Args:
        board: address of the board.
        header: for the leading thread, address of the header of the schedule that the board shows,
            which it closes at its end; others read it from the board.
        thread: number of this thread; 0 leads.
        patience: the largest number of turns to wait, for other threads or for work.

    Returns:
        Of the leading thread: 1 if the schedule is done and no thread works on it; 0 if others take
        long: call it again. Of others: 1 if a schedule is open and other threads work on its items.
    """
    idle = 0
    while idle < patience:
        opened = header if thread == 0 else load(board + _SCHEDULE)
        if opened != 0:
            over = 1
            if thread != 0:
                increase(board + _AT_WORK, 1)
            if (
                thread == 0 or load(board + _SCHEDULE) == opened
            ):  # not closed: it stays until we leave
                over = _work(opened, thread, patience)
            if thread == 0:
                return 0 if over == 0 else _close(board, opened, patience)
            increase(board + _AT_WORK, -1)
            if over == 0:
                return 1
            while load(board + _SCHEDULE) == opened and idle < patience:
                pause()
                idle += 1
            idle = 0
        pause()
        idle += 1
    return 0


@entry
def _withhold(state: int) -> int:
    """Take an item, but do nothing with it."""
    return take(state)


class Schedule:
    """Items of code and what they wait for.

    Args:
        tables: per item, its kernels and the addresses of their arguments.
        before: per item, the numbers of the items that it waits for.
        threads: per item, the thread that looks at it first.
        words: by item, the addresses of the words of other processes that it waits for.
        turn: address of the number that these words must reach.
    """

    def __init__(
        self,
        tables: Sequence[np.ndarray[Any, Any]],
        before: Sequence[Sequence[int]],
        threads: Sequence[int],
        words: Mapping[int, Sequence[int]] = MappingProxyType({}),
        turn: int = 0,
    ) -> None:
        waits: list[int] = []
        wanted: list[int] = []
        rows: list[tuple[int, ...]] = []
        self.notes: list[tuple[int, int]] = []
        """Per item, begin and end of its numbers in the notes."""
        at = 0
        for table, needed, thread in zip(tables, before, threads, strict=True):
            ends = len(waits), len(waits) + len(needed)
            first = len(wanted)
            wanted.extend(words.get(len(rows), ()))
            place = thread, at, first, len(wanted)
            rows.append((table.ctypes.data, len(table), *ends, *place))
            waits.extend(needed)
            end = at + HEAD + width(len(table))
            self.notes.append((at, end))
            at = end
        self.width = at
        """The number of numbers that a run notes."""
        self._items = np.array(rows, np.int64).reshape(-1, _FIELDS)
        self._waits = np.array(waits, np.int64)
        self._states = np.zeros(len(rows), np.int64)
        self._begin = self._states.copy()  # the states at the begin of a run
        self._begins: list[tuple[Sequence[int], np.ndarray[Any, Any]]] = [((), self._begin)]
        self._wanted = np.array(wanted, np.int64)
        self._lacked = np.zeros(len(rows), np.int64)
        arrays = [self._items, self._waits, self._states]
        ends_with = 8 * at, self._wanted.ctypes.data, turn, self._lacked.ctypes.data
        self._header = np.array(
            [len(rows), *(a.ctypes.data for a in arrays), 0, 0, *ends_with], np.int64
        )
        self._words = memoryview(self._header.data)  # written to much faster than an array
        self._tables = list(tables)
        self.address: int = self._header.ctypes.data
        """The address of its header."""

    def reset(self) -> None:
        """Make it ready to run; no thread may be working on it."""
        self._states[:] = self._begin
        if len(self._wanted):
            self._lacked.fill(0)
        self._words[_REFUSED] = 0

    def leave_out(self, items: Sequence[int]) -> None:
        """Let runs skip some items, as if they were done.

        Args:
            items: their numbers; few sequences are left out, again and again.
        """
        for known, begin in self._begins:
            if known is items:
                self._begin = begin
                return
        self._begin = np.zeros_like(self._states)
        self._begin[items] = _DONE
        self._begins.append((items, self._begin))

    def note(self, address: int) -> None:
        """Let items record when their kernels run.

        Args:
            address: where the next run writes; later runs write behind it. 0 ends recording.
        """
        self._words[_NOTES] = address

    def begun(self, item: int) -> bool:
        """Whether a thread has taken an item.

        Args:
            item: its number.
        """
        return bool(self._states[item] != _WAITING)

    def withhold(self, item: int) -> bool:
        """Prevent an item from beginning until it is released or the schedule is reset.

        Args:
            item: its number.

        Returns:
            False if a thread has begun it already.
        """
        return bool(_withhold(self._states.ctypes.data + 8 * item) == _WAITING)

    def ended(self, item: int) -> bool:
        """Whether an item has been done.

        Args:
            item: its number.
        """
        return bool(self._states[item] == _DONE)

    @property
    def done(self) -> int:
        """How many items have been done."""
        return int(np.count_nonzero(self._states == _DONE))

    def release(self, item: int) -> None:
        """Allow a withheld item to begin.

        Args:
            item: its number.
        """
        self._states[item] = _WAITING

    def lacking(self) -> list[int]:
        """The addresses of words that items wait for, if nothing else in this process delays them.

        The words may have been written meanwhile.
        """
        found: dict[int, None] = {}
        for item, state in enumerate(self._states.tolist()):
            row = self._items[item]
            words = self._wanted[row[_FIRST_WORD] : row[_LAST_WORD]]
            waits = self._waits[row[_FIRST_WAIT] : row[_LAST_WAIT]]
            if state == _WAITING and len(words) and (self._states[waits] == _DONE).all():
                found.update(dict.fromkeys(words.tolist()))
        return list(found)

    def stop(self) -> None:
        """Prevent all further items from beginning."""
        self._header[_REFUSED] = _STOPPED

    @property
    def refused(self) -> int:
        """The number, from 1, of the item that rejected its values; 0 if there is none."""
        return int(self._header[_REFUSED])
