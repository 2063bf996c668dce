"""The sums of a step among the members of a group: for steps of code, and for tasks one by one.

Both ways exchange the same values by the same means, so that one member may run a step as code and
another one task by task, or begin it as code and go on task by task. Sums go in the order of the
replicas, ``((g0 + g1) + g2) + ...``, and have the bits that they have in one process.

On one host values lie in memory that all members see, and words say what is there
(:mod:`.memory_sums`); between hosts they go through sockets (:mod:`.wire_sums`).
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
"""By name of a sparse value, how many rows each member has at most."""

READY = "the wait for all replicas before updates"


class StepSums(ABC):
    """The sums of a step among the members of a group.

    Plans that add up the same share them, though their tasks may have other numbers.

    Args:
        group: the members.
        buckets: what is added up, over the devices of all members; each with its place here as its
            number.
        rooms: of sparse values; without those of which it is not known.
        first: which device of the group is the first one of the plan.

    Attributes:
        step: number of the step that runs.
        carried: when the leading thread of the latest step of code carried values, by number of the
            bucket: begin and end in nanoseconds.
        unknown: numbers of buckets with sparse values of which only a run tells how many rows they
            have; no code adds them up.
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
        """What a collective of the step is called.

        Args:
            number: of its bucket.
        """
        return Tag(self.step, number, self.buckets[number].text)

    @property
    def moved(self) -> dict[int, dict[str, int]]:
        """What the latest step moved, by number of the bucket: bytes by how they went."""
        return self.group.moved

    # ---- for steps of code

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """Who writes the words that code waits for, by address; none where a thread does."""
        return {}

    @property
    @abstractmethod
    def ready(self) -> Signs:
        """That a member has done all that can fail."""

    @abstractmethod
    def parts(self, number: int) -> TaskExchange:
        """What code must know of a bucket.

        Args:
            number: of the bucket.
        """

    @abstractmethod
    def peers(self, code: CodeStep, interrupts: Uninterrupted) -> Peers:
        """What the leading thread of a step of code does while the others take long.

        Args:
            code: the step.
            interrupts: holds interrupts back while it runs.
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
        """Add up a bucket through sockets; it knows devices by their numbers in the group."""
        reducer.run([*(Env() for _ in range(self.first)), *envs], self.tag(number))

    @abstractmethod
    def wait_for_all(self) -> None:
        """Wait until all members have done what can fail.

        Raises:
            GangError: a member failed, is gone, or does not answer; nobody overwrites anything.
        """


class PlanSums:
    """The sums of a plan, for its code (an ``Exchange``).

    Args:
        sums: those of its steps.
        buckets: by number of a task, that of its bucket.
    """

    def __init__(self, sums: StepSums, buckets: Mapping[int, int]) -> None:
        self.sums, self.buckets = sums, buckets
        self.turn = sums.turn

    @property
    def ready(self) -> Signs:
        """That a member has done all that can fail."""
        return self.sums.ready

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """Who writes the words that code waits for, by address."""
        return self.sums.owners

    def task(self, number: int) -> TaskExchange | None:
        """What code must know of a task; None: it concerns this member alone."""
        return self.sums.parts(self.buckets[number]) if number in self.buckets else None

    @property
    def moved(self) -> dict[int, dict[str, int]]:
        """What the latest step moved, by number of the task: bytes by how they went."""
        return self._by_task(self.sums.moved)

    @property
    def carried(self) -> dict[int, tuple[int, int]]:
        """When the leading thread carried values, by number of the task."""
        return self._by_task(self.sums.carried)

    def _by_task(self, found: Mapping[int, _V]) -> dict[int, _V]:
        return {task: found[number] for task, number in self.buckets.items() if number in found}
