"""The tasks of a plan that add up values of the replicas of all trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.row_limits import row_limits
from dpexec.engine.compile.plans.partition import SUMS
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import Bucket, bucket_of
from dpexec.engine.ir.sizes import at_most

if TYPE_CHECKING:
    from dpexec.engine.run.trainers.exchange import TrainerExchange

__all__ = ["TrainerSum", "buckets_of", "of_all", "sparse_rows"]


class TrainerSum:
    """The call that stands for the nodes of a task that adds up.

    Args:
        number: of the bucket.
        exchange: the trainers.
    """

    def __init__(self, number: int, exchange: TrainerExchange) -> None:
        self._number, self._exchange = number, exchange

    def __call__(self, envs: Sequence[Env]) -> None:
        """Add up; every device gets what it should."""
        self._exchange.sums.sums.run(self._number, envs)


def of_all(bucket: Bucket, number: int, trainers: int, devices: int) -> Bucket:
    """The sums of a task, for the devices of all trainers.

    Args:
        bucket: for those of one.
        number: among the buckets of the step.
        trainers: how many there are.
        devices: that each has.
    """

    def everywhere(here: Sequence[int]) -> tuple[int, ...]:
        return tuple(t * devices + d for t in range(trainers) for d in here)

    sums = (
        replace(total, sources=everywhere(total.sources), targets=everywhere(total.targets))
        for total in bucket.sums
    )
    return replace(bucket, number=number, sums=tuple(sums))


def buckets_of(binding: Binding) -> dict[int, Bucket]:
    """What tasks of this process add up, by number of the task."""
    plan = binding.plan
    tasks = (task for task in plan.tasks if task.nodes[0].kind in SUMS)
    return {task.id: bucket_of(plan, task, binding.given) for task in tasks}


def sparse_rows(binding: Binding) -> dict[str, int]:
    """How many rows the sparse sums of this process have at most, by name in order."""
    plan = binding.plan
    limits = row_limits(plan.nodes, plan.missing, binding.given)
    made = (v for node in plan.nodes if node.kind in SUMS for v in node.outputs if v.kind == "var")
    found = {v.name: limits[v.device][v.name] for v in made if v.name in limits[v.device]}
    return {name: at_most(found[name]) for name in sorted(found)}
