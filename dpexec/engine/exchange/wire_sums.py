"""Sums of a step that go through sockets, see :mod:`.reducers`.

The leading thread of a step of code carries values while code waits. When the values of a bucket
are there, it adds them up with the other members, and then writes the word that code waits for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.bindings.exchanges import Signs, TaskExchange
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.payload import arrays_in, hand_out
from dpexec.engine.exchange.reducers import reducer_of
from dpexec.engine.exchange.step_sums import PlanSums, Rooms, StepSums

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.code_step import CodeStep

__all__ = ["WireSums"]

_Results = dict[str, list[np.ndarray[Any, Any]]]


class WireSums(StepSums):
    """The sums of a step among members of several hosts, see :class:`StepSums`."""

    def __init__(self, group: Group, buckets: Sequence[Bucket], rooms: Rooms, first: int) -> None:
        super().__init__(group, buckets, rooms, first)
        self._reducers = [reducer_of(group, bucket) for bucket in buckets]
        self._words = np.zeros((len(buckets) + 1, 2), np.int64)  # code writes [0], waits for [1]
        self._results: dict[int, _Results] = {}

    def begin(self, step: int) -> None:
        """See :class:`StepSums`."""
        super().begin(step)
        self.carried = {}

    def _signs(self, number: int | None) -> Signs:
        own = self._words[_line(number)].ctypes.data
        return Signs(own, [own + 8])

    # ---- for steps of code

    @property
    def ready(self) -> Signs:
        """See :class:`StepSums`."""
        return self._signs(None)

    def parts(self, number: int) -> TaskExchange:
        """See :class:`StepSums`; code copies no values, it only waits for the sums."""
        if number not in self._results:
            self._results[number] = self._rooms_of(number)
        signs = self._signs(number)
        found = self._results[number]
        return TaskExchange(signs, signs, {}, (), {}, found, self.heights(number))

    def _rooms_of(self, number: int) -> _Results:
        """Where code finds the sums of a bucket: if possible, where these are added up."""
        bucket, made = self.buckets[number], self._reducers[number].made
        if made is None:
            return {total.name: self._room(total) for total in bucket.sums}
        arrays = zip(bucket.sums, arrays_in(made, bucket), strict=True)
        return {total.name: [array] for total, array in arrays}

    def _room(self, total: Sum) -> list[np.ndarray[Any, Any]]:
        if total.height is None:
            return [np.empty(total.shape, total.dtype)]
        room = sum(self.rooms[total.name])
        value = np.empty((room, *total.shape), total.dtype)
        return [np.empty(room, np.int64), value, np.zeros(1, np.int64)]

    def peers(self, code: CodeStep, interrupts: Uninterrupted) -> _Carrying:
        """See :class:`StepSums`."""
        return _Carrying(self, code, interrupts)

    def says(self, number: int | None) -> bool:
        """Whether code says that the values of a bucket are there.

        Args:
            number: of the bucket; None: whether code has done all that can fail.
        """
        return bool(self._words[_line(number), 0] >= self.step)

    def arrived(self, number: int | None) -> bool:
        """Whether the sums of a bucket are there.

        Args:
            number: of the bucket; None: whether all members are ready.
        """
        return bool(self._words[_line(number), 1] >= self.step)

    def carry(self, number: int | None, task: int, code: CodeStep) -> None:
        """Add up the values of a bucket that code has computed.

        Args:
            number: of the bucket; None: wait until all members are ready.
            task: number of the bucket's task in the plan.
            code: the step of code.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """
        if number is None:
            self.wait_for_all()
            return
        begin = time.perf_counter_ns()
        bucket, home, mine = self.buckets[number], self.group.home, self.group.rank
        envs = [Env() for _ in code.plan.graph.places]
        for total in bucket.sums:
            for device in (d for d in total.sources if home[d] == mine):
                here = device - self.first
                envs[here][total.name] = code.exchanged(task, here, total.name)
        self._reduce(self._reducers[number], number, envs)
        for total in bucket.sums:
            for device in [d for d in total.targets if home[d] == mine][:1]:
                value = envs[device - self.first][total.made]
                _store(value, self._results[number][total.name])
        self.carried[number] = begin, time.perf_counter_ns()
        self._words[_line(number), 1] = self.step

    # ---- for tasks one by one

    def run(self, number: int, envs: Sequence[Env]) -> None:
        """See :class:`StepSums`."""
        if not self.arrived(number):
            self._reduce(self._reducers[number], number, envs)
            return
        rooms = self._results[number]  # code has begun this step
        sums = ((total, _loaded(total, rooms[total.name])) for total in self.buckets[number].sums)
        hand_out(self.group, sums, envs, self.first)

    def wait_for_all(self) -> None:
        """See :class:`StepSums`."""
        if not self.arrived(None):
            self.group.barrier(self.step)
            self._words[_line(None), 1] = self.step


def _line(number: int | None) -> int:
    """The line of words of a bucket; None: the last line, which tells that members are ready."""
    return -1 if number is None else number


def _store(value: Any, room: Sequence[np.ndarray[Any, Any]]) -> None:
    """Put a sum into the arrays where code expects it, unless it lies there."""
    if not isinstance(value, SelectedRows):
        if value.ctypes.data != room[0].ctypes.data:
            np.copyto(room[0], value)
        return
    count = len(value.row_array)
    np.copyto(room[0][:count], value.row_array)
    np.copyto(room[1][:count], value.value)
    room[2][0] = count


def _loaded(total: Sum, room: Sequence[np.ndarray[Any, Any]]) -> Any:
    """A sum from the arrays where code expects it."""
    if total.height is None:
        return room[0]
    count = int(room[2][0])
    return SelectedRows(room[0][:count].copy(), total.height, room[1][:count].copy())


class _Carrying:
    """Called by the leading thread of a step of code while code waits for sums.

    Args:
        sums: the sums of the step.
        code: the step.
        interrupts: holds interrupts back while the step runs.
    """

    urgent = True

    def __init__(self, sums: WireSums, code: CodeStep, interrupts: Uninterrupted) -> None:
        self._sums, self._code, self._interrupts = sums, code, interrupts
        plan = code.plan
        assert isinstance(code.exchange, PlanSums)
        updates = min(plan.updates, default=len(plan.tasks))
        tasks = sorted(code.exchange.buckets.items())
        before = [(number, task) for task, number in tasks if task < updates]
        behind = [(number, task) for task, number in tasks if task > updates]
        self._left: list[tuple[int | None, int]] = [*before, (None, updates), *behind]
        self._early = len(before) - 1  # how many are due while code may go on
        if not any(sums.buckets[number].is_large for number, _ in before[:-1]):
            self._early = 0  # a word to another thread takes longer than they do

    @property
    def beside(self) -> bool:
        """Whether sums are due while code goes on; behind the last ones before updates it waits."""
        return self._early > 0

    def look(self) -> bool:
        """Carry the next bucket, if code has computed its values.

        Raises:
            KeyboardInterrupt: an interrupt came before this member said that it is ready.
            GangError: a member failed, is gone, or does not answer.
        """
        gates = self._code.gates
        assert gates is not None
        if self._interrupts.waits and self._code.schedule.withhold(gates.ready):
            raise KeyboardInterrupt
        if not self._left or not self._sums.says(self._left[0][0]):
            return False
        number, task = self._left.pop(0)
        self._early -= 1
        if self._code.schedule.begun(gates.ready):
            self._sums.carry(number, task, self._code)
        else:  # this member cannot say that it is ready before it has this sum
            with self._interrupts.allowed():
                self._sums.carry(number, task, self._code)
        return True
