"""Names and records that client and workers exchange: steps, bindings, and notes of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.records import Around, Moved, Ran
from dpexec.engine.compile.plans.plan import PlanKey
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.dask.deliveries import StepRows
from dpexec.engine.ir.sizes import Counts
from dpexec.engine.ir.spec import Spec

__all__ = ["BindingKey", "Epoch", "Feeding", "GangStep", "NewBinding", "Noted", "StepOf", "Value"]

Value = tuple[int, str]
"""A variable of a device."""


class BindingKey(NamedTuple):
    """The name of a binding in messages.

    Args:
        plan: the key of its plan.
        number: the number of the shapes that it is bound to.
        rows: the numbers of rows of every device's batch, if those shapes leave them open.
    """

    plan: PlanKey
    number: int
    rows: tuple[Counts, ...] = ()


class NewBinding(NamedTuple):
    """A binding that workers are told of.

    Args:
        plan: the key of its plan.
        number: the number by which steps name it.
        specs: shapes and types of a batch, per device; numbers of rows may be left open.
    """

    plan: PlanKey
    number: int
    specs: Sequence[Mapping[str, Spec]]


class Epoch(NamedTuple):
    """A time in which all replicas of a run keep their homes.

    Args:
        token: names the run.
        number: counts the run's epochs.
    """

    token: str
    number: int


class StepOf(NamedTuple):
    """A step, as its tasks name it.

    Args:
        epoch: the epoch in which it was sent.
        number: of the step.
        base: number of the step before, whose values it starts from.
    """

    epoch: Epoch
    number: int
    base: int


class Feeding(NamedTuple):
    """The feed of a replica, which its first job takes.

    Args:
        shard: the replica's part of the run.
        values: the values that came with the job, see :class:`Fed`.
        held: the rows of blocks on workers that are fed, too.
        recorded: whether to note when tasks run.
    """

    shard: Shard
    values: Mapping[str, Any]
    held: Sequence[StepRows]
    recorded: bool


@dataclass(frozen=True, slots=True)
class Noted:
    """The notes of a worker about a step.

    Args:
        worker: the name of the worker.
        stamps: the times that steps noted.
        ran: when tasks ran; None for tasks that ran elsewhere.
        transfers: values that came from other workers.
        moved: the bytes that collectives moved, by id of the node.
        processors: for how long the worker's threads worked, and waited for a processor, so far.
        unfinished: by number, when tasks of a failed step began and broke off, and the thread.
    """

    worker: str
    stamps: np.ndarray[Any, Any]
    ran: Sequence[Ran | None]
    transfers: Sequence[Around]
    moved: Moved = field(default_factory=dict)
    processors: tuple[int, int] = (0, 0)
    unfinished: Mapping[int, Ran] = field(default_factory=dict)


class GangStep(NamedTuple):
    """A step of a gang, for one member.

    Args:
        binding: number of the binding that runs.
        rows: the numbers of rows of every device's batch, if the binding leaves them open.
        number: of the step.
        values: the feeds of the member's devices.
        shards: the devices' parts of the run.
        persistable: names of feeds that also set a persistable variable.
        recorded: whether to note when tasks run.
    """

    binding: int
    rows: tuple[Counts, ...]
    number: int
    values: Mapping[int, Mapping[str, Any]]
    shards: Mapping[int, Shard]
    persistable: frozenset[str]
    recorded: bool = False

    @property
    def samples(self) -> list[int]:
        """The number of samples of each device."""
        return [shard.samples for shard in self.shards.values()]
