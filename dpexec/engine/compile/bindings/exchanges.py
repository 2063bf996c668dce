"""What a step of code must know of the processes with which it adds values up.

Processes put their values into memory that all of them see, and say so by words: a word is the
number of the latest step in which its process has come so far. Whoever supplies the memory
(:mod:`dpexec.engine.exchange`) says where everything lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpexec.engine.compile.plans.plan import Plan

__all__ = ["Addition", "Exchange", "Gates", "Signs", "TaskExchange", "slots_of"]


@dataclass(frozen=True)
class Signs:
    """Words by which processes say that they have come somewhere.

    Args:
        own: the address of the word of this process.
        others: the addresses of the words of the others.
    """

    own: int
    others: Sequence[int]


class Gates(NamedTuple):
    """Items between what can fail and the updates of a step in which other processes take part.

    Args:
        ready: says that this process has done all that can fail.
        go: waits until all say so.
    """

    ready: int
    go: int


@dataclass(frozen=True)
class Addition:
    """A part of a sum that this process adds up.

    Args:
        name: of the value.
        out: where the sum goes.
        values: where the values of all devices lie, in order.
        count: how many numbers.
    """

    name: str
    out: int
    values: Sequence[int]
    count: int


@dataclass(frozen=True)
class TaskExchange:
    """A collective task over the devices of several processes.

    Args:
        posted: that values lie where the others find them.
        summed: that sums lie there, as far as a process adds them up.
        slots: by device and name, where a value goes; of sparse rows, how many they are.
        additions: what this process adds up of dense values.
        counts: of sparse values, where it says how many rows each device has, in order; and which
            of them is the first one of this process.
        results: by name, where the sum lies: an array, or row numbers, values, and how many.
        heights: of sparse sums, how many rows they would have if they were dense, by name.
    """

    posted: Signs
    summed: Signs
    slots: Mapping[tuple[int, str], np.ndarray[Any, Any]]
    additions: Sequence[Addition]
    counts: Mapping[str, tuple[Sequence[int], int]]
    results: Mapping[str, Sequence[np.ndarray[Any, Any]]]
    heights: Mapping[str, int]


class Exchange(Protocol):
    """The other processes, for the steps of a plan."""

    @property
    def turn(self) -> int:
        """The address of the number of the step."""

    @property
    def ready(self) -> Signs:
        """That a process has done all that can fail: then variables may be overwritten."""

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """Who writes the words of others, by address: "rank", and the first "replica" there."""

    def task(self, number: int) -> TaskExchange | None:
        """A task of the plan; None: it concerns this process alone.

        Args:
            number: of the task.
        """


def slots_of(plan: Plan, exchange: Exchange) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """Where dense values may be computed that other processes add up, by device and name.

    Values whose name is written again are left out: others may still read the slot.

    Args:
        plan: what runs.
        exchange: the other processes.
    """
    made = (v for n in plan.nodes if not n.is_collective for v in n.outputs if v.kind == "var")
    times = Counter((var.device, var.name) for var in made)
    found: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
    for task in plan.tasks:
        parts = exchange.task(task.id) if task.is_collective else None
        for place, slot in parts.slots.items() if parts is not None else ():
            if times[place] == 1 and place[1] not in (parts.counts if parts else ()):
                found[place] = slot
    return found
