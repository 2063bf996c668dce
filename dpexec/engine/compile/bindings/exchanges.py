"""Addresses that a step of code needs in order to add up values with other processes.

Processes put their values into memory that all of them see, and tell each other by words. A word is
the number of the latest step in which its process has come to a certain point.
:mod:`dpexec.engine.exchange` supplies the memory, and says where everything lies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Addition", "Exchange", "Gates", "Signs", "TaskExchange", "slots_of"]


@dataclass(frozen=True)
class Signs:
    """Words by which processes say that they have come to a certain point of a step.

    Args:
        own: the address of the word of this process.
        others: the addresses of the words of the others.
    """

    own: int
    others: Sequence[int]


class Gates(NamedTuple):
    """Two items that come before the updates of a step that other processes take part in.

    Args:
        ready: the item that says that this process has done all that can fail.
        go: the item that waits until all processes have said so.
    """

    ready: int
    go: int


@dataclass(frozen=True)
class Addition:
    """A part of a sum that this process adds up.

    Args:
        name: of the value.
        out: the address of the sum.
        values: the addresses of the values of all devices, in order.
        count: how many numbers are added up.
    """

    name: str
    out: int
    values: Sequence[int]
    count: int


@dataclass(frozen=True)
class TaskExchange:
    """A collective task over the devices of several processes.

    Args:
        posted: the words for "my values are there".
        summed: the words for "my part of the sums is there".
        slots: by device and name, where a dense value goes. For a sparse value it takes the number
            of its rows; the rows go straight into the sum.
        additions: the parts of dense sums that this process adds up.
        counts: by name of a sparse value, the addresses of all devices' numbers of rows, in order,
            and the index of the first device of this process among them.
        results: by name, the arrays of the sum. A dense one has one array; a sparse one has row
            numbers, values, and the number of rows.
        heights: by name of a sparse sum, how many rows it would have if it were dense.
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
        """The words for "I have done all that can fail"; variables may be overwritten after all."""

    @property
    def owners(self) -> Mapping[int, Mapping[str, int]]:
        """By address of a word, the process that writes it: its "rank" and first "replica"."""

    def task(self, number: int) -> TaskExchange | None:
        """Where a collective task finds its values; None: no other process takes part in it.

        Args:
            number: of the task.
        """


def slots_of(plan: Plan, exchange: Exchange) -> dict[tuple[int, str], np.ndarray[Any, Any]]:
    """The slots in which code may compute dense values at once, by device and name.

    Values whose name is written again are left out: other processes may still read the slot.

    Args:
        plan: the plan that runs.
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
