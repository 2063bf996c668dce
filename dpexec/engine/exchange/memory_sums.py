"""Sums of a step in memory that all members of a host see.

Every member puts its values into memory of its own and says so by a word. When all have said so,
each member adds up an equal share of the bytes, and says so by another word. The sums lie in the
first member's memory, where all members read them. For sparse values, members first tell their
numbers of rows; then each puts its rows into the sum, at their place among the rows of all.

All memory is used again in every step. That is safe for values: a member reads them before it says
that it is ready for updates, and no step ends before all members are ready. It is safe for sums,
too: they are written when all members have put their next values there, and so have ended the step
before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.code_step import CodeStep
from dpexec.engine.compile.bindings.exchanges import Addition, Signs, TaskExchange
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.divided import add_up
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.payload import checked, hand_out, typed
from dpexec.engine.exchange.reducers import reducer_of
from dpexec.engine.exchange.shared import Bytes, Places
from dpexec.engine.exchange.step_sums import READY, Rooms, StepSums
from dpexec.engine.exchange.wire import GangError, Tag, look_after
from dpexec.engine.exchange.words import lacking, read, wait_for, write
from dpexec.engine.kernels.located import address
from dpexec.engine.threads.prepared import nap

__all__ = ["MemorySums"]

_LOOK = 1e-3  # seconds between looks at whether members are still there


class _Rows(NamedTuple):
    """Sparse rows of all devices in shared memory.

    Args:
        counts: the number of rows of each source, in order.
        rows: row numbers of the sum.
        value: rows of the sum.
        total: takes the sum's number of rows, for code.
    """

    counts: list[np.ndarray[Any, Any]]
    rows: np.ndarray[Any, Any]
    value: np.ndarray[Any, Any]
    total: np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Task:
    """A collective task.

    Args:
        bucket: the sums.
        exchange: the description of the task for code.
        dense: the dense sums, each with its slots by device of the group, and its array.
        rows: the sparse sums, each with its arrays.
        additions: the parts of sums that this member computes: how values are combined; the array
            that takes the result, followed by the values.
    """

    bucket: Bucket
    exchange: TaskExchange
    dense: list[tuple[Sum, dict[int, np.ndarray[Any, Any]], np.ndarray[Any, Any]]]
    rows: list[tuple[Sum, _Rows]]
    additions: list[tuple[Reduction, list[np.ndarray[Any, Any]]]]


class MemorySums(StepSums):
    """The sums of a step among members of one host, see :class:`StepSums`.

    Raises:
        GangError: a member does not answer.
        OSError: there is not enough memory.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], rooms: Rooms, first: int) -> None:
        super().__init__(group, buckets, rooms, first)
        self._places = [self._lay_out(rank) for rank in range(len(group.members))]
        sizes = {rank: places.size for rank, places in enumerate(self._places)}
        self._memory = group.share(sizes, Tag(0, 1 << 34, "the memory of sums"))
        self._ranks: dict[int, int] = {}  # of the members that write words, by address
        self._waits: dict[int, dict[str, int]] = {}  # of tasks in this step, by number
        self._texts: dict[int, str] = {}
        self._ready = self._signs("ready", READY)
        self._tasks = {b.number: self._make(b) for b in buckets if b.number not in self.unknown}
        self._reducers = {number: reducer_of(group, buckets[number]) for number in self.unknown}

    def begin(self, step: int) -> None:
        """See :class:`StepSums`."""
        super().begin(step)
        self._waits = {}

    def _lay_out(self, rank: int) -> Places:
        places, home = Places(), self.group.home
        places.add("ready", 8)
        for number, bucket in enumerate(self.buckets):
            if number in self.unknown:
                continue
            places.add((number, "posted"), 8)
            places.add((number, "summed"), 8)
            for index, total in enumerate(bucket.sums):
                for device in total.sources:
                    if home[device] == rank:
                        size = total.nbytes if total.height is None else 8
                        places.add((number, index, device), size)
                room = sum(self.rooms[total.name]) if total.height is not None else 1
                if rank == 0 and not _stays(bucket, total):
                    places.add((number, index, "value"), room * total.nbytes)
                    places.add((number, index, "rows"), 8 * room if total.height is not None else 0)
        return places

    def _bytes(self, rank: int, key: Any) -> Bytes:
        return self._memory[rank][self._places[rank][key]]

    def _signs(self, key: Any, text: str) -> Signs:
        """The words of all members at a key; ``text`` names the wait for them in errors."""
        words = [address(self._bytes(rank, key)) for rank in range(len(self.group.members))]
        self._ranks.update((word, rank) for rank, word in enumerate(words))
        self._texts.update(dict.fromkeys(words, text))
        return Signs(words.pop(self.group.rank), words)

    def _make(self, bucket: Bucket) -> _Task:
        home, mine, number = self.group.home, self.group.rank, bucket.number
        dense, sparse = [], []
        slots: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
        counts: dict[str, tuple[Sequence[int], int]] = {}
        results: dict[str, Sequence[np.ndarray[Any, Any]]] = {}
        for index, total in enumerate(bucket.sums):
            parts = {d: self._bytes(home[d], (number, index, d)) for d in total.sources}
            if total.height is None:
                first = parts[total.sources[0]]
                value = first if _stays(bucket, total) else self._bytes(0, (number, index, "value"))
                arrays = {d: typed(part, 0, total) for d, part in parts.items()}
                result = typed(value, 0, total)
                dense.append((total, arrays, result))
                results[total.name] = [result]
            else:
                arrays = {d: part.view(np.int64) for d, part in parts.items()}
                found = self._rows(number, index, total, [*arrays.values()])
                sparse.append((total, found))
                results[total.name] = found.rows, found.value, found.total
                own = next((i for i, d in enumerate(total.sources) if home[d] == mine), 0)
                counts[total.name] = [address(count) for count in found.counts], own
            here = ((d, array) for d, array in arrays.items() if home[d] == mine)
            slots.update({(d - self.first, total.name): array for d, array in here})
        additions = list(self._additions(bucket, dense))
        posted = self._signs((number, "posted"), bucket.text)
        stays = all(_stays(bucket, total) for total in bucket.sums)
        summed = posted if stays else self._signs((number, "summed"), bucket.text)
        shares = [_addition(total.name, arrays) for total, arrays in additions]
        heights = self.heights(number)
        exchange = TaskExchange(posted, summed, slots, shares, counts, results, heights)
        combined = [(total.reduction, arrays) for total, arrays in additions]
        return _Task(bucket, exchange, dense, sparse, combined)

    def _rows(
        self, number: int, index: int, total: Sum, counts: list[np.ndarray[Any, Any]]
    ) -> _Rows:
        """The arrays of a sparse sum."""
        rows = self._bytes(0, (number, index, "rows")).view(np.int64)
        value = self._bytes(0, (number, index, "value")).view(total.dtype)
        return _Rows(counts, rows, value.reshape(len(rows), *total.shape), np.zeros(1, np.int64))

    def _additions(
        self,
        bucket: Bucket,
        dense: Sequence[tuple[Sum, dict[int, np.ndarray[Any, Any]], np.ndarray[Any, Any]]],
    ) -> Iterator[tuple[Sum, list[np.ndarray[Any, Any]]]]:
        """This member's equal share of the bytes of dense sums."""
        dense = [found for found in dense if not _stays(bucket, found[0])]
        alone = replace(bucket, sums=tuple(total for total, _, _ in dense))
        low, high = alone.layout.shares(len(self.group.members))[self.group.rank]
        for piece in alone.pieces(low, high):
            total, slots, result = dense[piece.number]
            part = slice(
                *(end // total.dtype.itemsize for end in (piece.part.start, piece.part.stop))
            )
            arrays = [result, *(slots[device] for device in total.sources)]
            yield total, [array.reshape(-1)[part] for array in arrays]

    # ---- for steps of code

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """See :class:`StepSums`."""
        return {word: self.group.whom(rank) for word, rank in self._ranks.items()}

    @property
    def ready(self) -> Signs:
        """See :class:`StepSums`."""
        return self._ready

    def parts(self, number: int) -> TaskExchange:
        """See :class:`StepSums`."""
        return self._tasks[number].exchange

    def peers(self, code: CodeStep, interrupts: Uninterrupted) -> _Waiting:
        """See :class:`StepSums`."""
        return _Waiting(self, code, interrupts)

    def look_after(self, words: Sequence[int], since: float) -> None:
        """Check that the members are still there whose words are waited for.

        Args:
            words: addresses of the words.
            since: when the wait began, by ``time.perf_counter``.

        Raises:
            GangError: a member is gone, or says that the run ends, or the time limit is over.
        """
        group, step = self.group, self.step
        found = {word: self._ranks[word] for word in words}
        text = next((self._texts[word] for word in words), READY)
        tag = Tag(step, 1 << 32, text)
        look_after(group.channels, lambda: lacking(found, step), since, group.limit, tag)

    def lack(self, words: Sequence[int]) -> tuple[int, ...]:
        """The addresses, among ``words``, of words that have not reached this step."""
        return tuple(word for word in words if read(word) < self.step)

    def take_back(self) -> bool:
        """Take back the word that this member is ready for updates.

        A member that waits for all reads all words a second time after the last has come. So either
        it sees that this word was taken back, or this member sees here that all others are ready.

        Returns:
            Whether the word was taken back. It is not if all others are ready, as some of them may
            have begun to update.
        """
        write(self._ready.own, 0)
        if self.lack(self._ready.others):
            return True
        write(self._ready.own, self.step)
        return False

    # ---- for tasks one by one

    def run(self, number: int, envs: Sequence[Env]) -> None:
        """See :class:`StepSums`."""
        if number in self.unknown:
            self._reduce(self._reducers[number], number, envs)
            return
        task, home, mine = self._tasks[number], self.group.home, self.group.rank
        moved = self.group.moved_at(self.tag(number))
        for total, slots, _ in task.dense:
            for device, slot in slots.items():
                if home[device] == mine:
                    np.copyto(slot, checked(envs[device - self.first], total, device))
                    moved["shared"] += total.nbytes
        for total, found in task.rows:
            for device, count in zip(total.sources, found.counts, strict=True):
                if home[device] == mine:
                    count[0] = len(envs[device - self.first][total.name].row_array)
        self._waits[number] = self._meet(task.exchange.posted, number)
        add_up(task.additions)
        for total, found in task.rows:
            moved["shared"] += self._place(total, found, envs)
        if task.exchange.summed is not task.exchange.posted:
            self._meet(task.exchange.summed, number)
        results: dict[str, Any] = {total.name: result for total, _, result in task.dense}
        for total, found in task.rows:
            end = sum(int(count[0]) for count in found.counts)
            rows, value = found.rows[:end].copy(), found.value[:end].copy()
            results[total.name] = SelectedRows(rows, total.height or 0, value)
        sums = ((total, results[total.name]) for total in task.bucket.sums)
        hand_out(self.group, sums, envs, self.first)

    def _place(self, total: Sum, found: _Rows, envs: Sequence[Env]) -> int:
        """Put the rows of this member into a sparse sum; returns their bytes."""
        end = nbytes = 0
        for device, count in zip(total.sources, found.counts, strict=True):
            start, end = end, end + int(count[0])
            if self.group.home[device] == self.group.rank:
                value = envs[device - self.first][total.name]
                np.copyto(found.rows[start:end], value.row_array)
                np.copyto(found.value[start:end], value.value)
                nbytes += (end - start) * (8 + total.nbytes)
        return nbytes

    def _meet(self, signs: Signs, number: int) -> dict[str, int]:
        """Write this member's word, and wait for the others'; returns the note about the wait."""
        write(signs.own, self.step)
        began, last = time.perf_counter_ns(), self._wait(signs, self.tag(number))
        return self.group.waited(time.perf_counter_ns() - began, last)

    def _wait(self, signs: Signs, tag: Tag) -> int | None:
        ranks, group = {word: self._ranks[word] for word in signs.others}, self.group
        return wait_for(group.channels, ranks, self.step, group.limit, tag)

    def wait_for_all(self) -> None:
        """See :class:`StepSums`."""
        write(self._ready.own, self.step)
        try:
            self._wait(self._ready, Tag(self.step, 1 << 32, READY))
        except GangError:
            if self.take_back():
                raise

    @property
    def moved(self) -> dict[int, dict[str, int]]:
        """See :class:`StepSums`; bytes follow from the layout, for steps of code, too."""
        found = {n: self.group.moved[n] for n in self.unknown if n in self.group.moved}
        mine = self.group.members[self.group.rank].devices
        for number, task in self._tasks.items():
            nbytes = sum(t.nbytes for t, slots, _ in task.dense for d in slots if d in mine)
            for total, rows in task.rows:
                counts = zip(total.sources, rows.counts, strict=True)
                nbytes += sum(int(n[0]) for d, n in counts if d in mine) * (8 + total.nbytes)
            waited = self._waits.get(number, {})
            found[number] = {"sent": 0, "received": 0, "shared": nbytes, **waited}
        return found


def _stays(bucket: Bucket, total: Sum) -> bool:
    """Whether a "sum" is the value of one device, which others may read in that device's slot.

    Only after updates: before them, the device may overwrite the slot with its next value while
    others still read.
    """
    return bucket.late and total.height is None and len(total.sources) == 1


def _addition(name: str, arrays: Sequence[np.ndarray[Any, Any]]) -> Addition:
    out, *values = map(address, arrays)
    return Addition(name, out, values, len(arrays[0]))


class _Waiting:
    """Called by the leading thread of a step of code while it waits for other members.

    Args:
        sums: the sums of the step.
        code: the step.
        interrupts: holds interrupts back while the step runs.
    """

    urgent = beside = False

    def __init__(self, sums: MemorySums, code: CodeStep, interrupts: Uninterrupted) -> None:
        self._sums, self._schedule, self._interrupts = sums, code.schedule, interrupts
        assert code.gates is not None
        self._gates = code.gates
        self._looked = self._since = 0.0
        self._lacking: tuple[int, ...] = ()

    def look(self) -> bool:
        """Check whether an interrupt waits, and whether the other members are still there.

        Raises:
            KeyboardInterrupt: an interrupt came before this member said that it is ready.
            GangError: a member failed, is gone, or does not answer.
        """
        if self._interrupts.waits and self._schedule.withhold(self._gates.ready):
            raise KeyboardInterrupt
        now = time.perf_counter()
        if now - self._looked < _LOOK:
            return False
        self._looked = now
        found = self._sums.lack(self._schedule.lacking())
        if found != self._lacking:
            self._lacking, self._since = found, now
        try:
            self._sums.look_after(found, self._since)
        except GangError:
            if self._may_end():
                raise
        return False

    def _may_end(self) -> bool:
        """Whether this member may give up the step: then no member completes it."""
        schedule, gates = self._schedule, self._gates
        if schedule.withhold(gates.ready):
            return True
        began = time.perf_counter()
        while not schedule.ended(gates.ready):
            nap(began)
        if not schedule.withhold(gates.go):
            return bool(self._sums.lack(self._lacking))
        if self._sums.take_back():
            return True
        schedule.release(gates.go)
        return False
