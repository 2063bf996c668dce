"""The sums of a step among the members of a group: for steps of code, and task by task.

Both ways exchange the same values by the same means. So one member may run a step as code while
another runs it task by task, and a step may begin as code and go on task by task. Values are added
up in the order of the replicas, ``((g0 + g1) + g2) + ...``; sums have the same bits as in one
process.

On one host values lie in memory that all members see, and words tell which are there
(:mod:`.memory_sums`). Between hosts they go through sockets (:mod:`.wire_sums`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from dpexec.engine.compile.bindings.exchanges import Signs, TaskExchange
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.interrupts import Uninterrupted
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.reducers import Reducer
from dpexec.engine.exchange.wire import Tag

if TYPE_CHECKING:
    from dpexec.engine.compile.bindings.code_step import CodeStep
    from dpexec.engine.threads.thread_team import Peers

_V = TypeVar("_V")

__all__ = ["READY", "PlanSums", "Rooms", "StepSums"]

Rooms = Mapping[str, Sequence[int]]
"""By name of a sparse value, the most rows of each member."""

READY = "the wait for all replicas before updates"


class StepSums(ABC):
    """The sums of a step among the members of a group.

    Plans with equal sums share them, though the tasks of these plans may have different numbers.

    Args:
        group: the members.
        buckets: the sums over the devices of all members. A bucket's number is its position here.
        rooms: the most rows of sparse values; values without a known limit are left out.
        first: the number that the plan's first device has in the group.

    Attributes:
        step: number of the step that runs.
        carried: begin and end, in nanoseconds, of the leading thread's work for each bucket of the
            latest step of code, by number of the bucket.
        unknown: numbers of buckets with sparse values without a known limit; code cannot add them
            up.
    """

    def __init__(self, group: Group, buckets: Sequence[Bucket], rooms: Rooms, first: int) -> None:
        self.group, self.buckets, self.rooms, self.first = group, buckets, rooms, first
        self.step = 0
        self.carried: dict[int, tuple[int, int]] = {}
        self.unknown = {
            bucket.number
            for bucket in buckets
            if any(t.height is not None and t.name not in rooms for t in bucket.sums)
        }
        self._turn = np.zeros(1, np.int64)
        self.turn: int = self._turn.ctypes.data
        """The address of the number of the step, for code."""

    def begin(self, step: int) -> None:
        """A step begins.

        Args:
            step: its number, greater than those before.
        """
        self.step = step
        self._turn[0] = step

    def heights(self, number: int) -> dict[str, int]:
        """How many rows the sparse sums of a bucket would have if they were dense, by name.

        Args:
            number: of the bucket.
        """
        sums = self.buckets[number].sums
        return {total.name: total.height for total in sums if total.height is not None}

    def tag(self, number: int) -> Tag:
        """The tag of a bucket in this step.

        Args:
            number: of the bucket.
        """
        return Tag(self.step, number, self.buckets[number].text)

    @property
    def moved(self) -> dict[int, dict[str, int]]:
        """The bytes that the latest step moved, by number of the bucket and by their way."""
        return self.group.moved

    # ---- for steps of code

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """By address of a word that code waits for, the process that writes it.

        Empty if a thread of this process writes all words.
        """
        return {}

    @property
    @abstractmethod
    def ready(self) -> Signs:
        """The words for "I have done all that can fail"."""

    @abstractmethod
    def parts(self, number: int) -> TaskExchange:
        """The description of a bucket for code.

        Args:
            number: of the bucket.
        """

    @abstractmethod
    def peers(self, code: CodeStep, interrupts: Uninterrupted) -> Peers:
        """The object that the leading thread of a step of code calls while it waits for others.

        Args:
            code: the step.
            interrupts: holds interrupts back while the step runs.
        """

    # ---- for tasks one by one

    @abstractmethod
    def run(self, number: int, envs: Sequence[Env]) -> None:
        """Add up the values of a bucket.

        Args:
            number: of the bucket.
            envs: values per device of the plan.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """

    def _reduce(self, reducer: Reducer, number: int, envs: Sequence[Env]) -> None:
        """Add up a bucket through sockets; reducers number devices as the group does."""
        reducer.run([*(Env() for _ in range(self.first)), *envs], self.tag(number))

    @abstractmethod
    def wait_for_all(self) -> None:
        """Wait until all members have done all that can fail.

        Raises:
            GangError: a member failed, is gone, or does not answer; no member overwrites anything.
        """


class PlanSums:
    """The sums of a plan, for its code (an ``Exchange``).

    Args:
        sums: the sums of its steps.
        buckets: the number of the bucket, by number of the task.
    """

    def __init__(self, sums: StepSums, buckets: Mapping[int, int]) -> None:
        self.sums, self.buckets = sums, buckets
        self.turn = sums.turn

    @property
    def ready(self) -> Signs:
        """The words for "I have done all that can fail"."""
        return self.sums.ready

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """By address of a word that code waits for, the process that writes it."""
        return self.sums.owners

    def task(self, number: int) -> TaskExchange | None:
        """The description of a task for code; None: no other member takes part in it."""
        return self.sums.parts(self.buckets[number]) if number in self.buckets else None

    @property
    def moved(self) -> dict[int, dict[str, int]]:
        """The bytes that the latest step moved, by number of the task and by their way."""
        return self._by_task(self.sums.moved)

    @property
    def carried(self) -> dict[int, tuple[int, int]]:
        """Begin and end of the leading thread's work in nanoseconds, by number of the task."""
        return self._by_task(self.sums.carried)

    def _by_task(self, found: Mapping[int, _V]) -> dict[int, _V]:
        return {task: found[number] for task, number in self.buckets.items() if number in found}
