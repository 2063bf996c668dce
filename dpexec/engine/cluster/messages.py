"""What client and workers call things between each other: steps, bindings, and what was noted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.compile.bindings.records import Around, Moved, Ran
from dpexec.engine.compile.plans.plan import PlanKey
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.dask.deliveries import StepRows
from dpexec.engine.ir.sizes import Counts
from dpexec.engine.ir.spec import Spec

__all__ = ["BindingKey", "Epoch", "Feeding", "GangStep", "NewBinding", "Noted", "StepOf", "Value"]

Value = tuple[int, str]
"""A variable of a device."""


class BindingKey(NamedTuple):
    """What a binding is called on the way to workers, and among them.

    Args:
        plan: of the plan.
        number: of the shapes that it is bound to.
        rows: the numbers of rows of every device's batch, if those shapes leave them open.
    """

    plan: PlanKey
    number: int
    rows: tuple[Counts, ...] = ()


class NewBinding(NamedTuple):
    """A binding that workers are told of.

    Args:
        plan: of the plan.
        number: what it is called.
        specs: shapes and types of a batch, per device; numbers of rows may be left open.
    """

    plan: PlanKey
    number: int
    specs: Sequence[Mapping[str, Spec]]


class Epoch(NamedTuple):
    """A time in which the replicas of a runner have the same homes.

    Args:
        token: of the runner.
        number: counts its epochs.
    """

    token: str
    number: int


class StepOf(NamedTuple):
    """A step, as its tasks name it.

    Args:
        epoch: when it was sent.
        number: of the step.
        base: number of the step before, on whose values it works.
    """

    epoch: Epoch
    number: int
    base: int


class Feeding(NamedTuple):
    """What the first job of a replica takes.

    Args:
        shard: the replica's part of the run.
        values: what came with the job, see :class:`Fed`.
        held: the rows of blocks that it takes, too.
        recorded: whether to note when tasks run.
    """

    shard: Shard
    values: Mapping[str, Any]
    held: Sequence[StepRows]
    recorded: bool


@dataclass(frozen=True, slots=True)
class Noted:
    """What a worker noted of a step.

    Args:
        worker: its name.
        stamps: the times that steps noted.
        ran: when tasks ran; None for those that ran elsewhere.
        transfers: what came from other workers.
        moved: the bytes that collectives moved, by id of the node.
    """

    worker: str
    stamps: np.ndarray[Any, Any]
    ran: Sequence[Ran | None]
    transfers: Sequence[Around]
    moved: Moved = field(default_factory=dict)


class GangStep(NamedTuple):
    """A step of a gang, for one member.

    Args:
        binding: number of what runs.
        rows: the numbers of rows of every device's batch, if it leaves them open.
        number: of the step.
        values: what its devices are fed.
        shards: their parts of the run.
        persistable: names of what is fed that also set a variable.
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
        """Of its devices."""
        return [shard.samples for shard in self.shards.values()]
