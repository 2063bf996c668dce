"""The tasks of a plan that add up values of the replicas of all trainers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dpexec.engine.compile.binding import Binding
from dpexec.engine.compile.code.row_limits import row_limits
from dpexec.engine.compile.env import Env
from dpexec.engine.compile.partition import SUMS
from dpexec.engine.exchange.buckets import Bucket, bucket_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.reducers import Reducer, reducer_of
from dpexec.engine.exchange.wire import Tag

if TYPE_CHECKING:
    from dpexec.engine.run.trainers.exchange import TrainerExchange

__all__ = ["TrainerSum", "buckets_of", "sparse_rows"]


class TrainerSum:
    """The call that stands for the nodes of a task that adds up.

    Args:
        bucket: what it adds up of this process.
        exchange: the trainers.
    """

    def __init__(self, bucket: Bucket, exchange: TrainerExchange) -> None:
        self._bucket, self._exchange = bucket, exchange
        self._group: Group | None = None
        self._reducer: Reducer

    def __call__(self, envs: Sequence[Env]) -> None:
        """Add up; every device gets what it should."""
        group, party = self._exchange.group, self._exchange.party
        if self._group is not group:
            bucket = _of_all(self._bucket, party.size, len(envs))
            self._group, self._reducer = group, reducer_of(group, bucket)
        elsewhere = [Env()] * (party.rank * len(envs))
        tag = Tag(party.steps, self._bucket.number, self._bucket.text)
        self._reducer.run([*elsewhere, *envs], tag)


def _of_all(bucket: Bucket, trainers: int, devices: int) -> Bucket:
    """The sums of a task, for the devices of all trainers."""

    def everywhere(here: Sequence[int]) -> tuple[int, ...]:
        return tuple(t * devices + d for t in range(trainers) for d in here)

    sums = (
        replace(total, sources=everywhere(total.sources), targets=everywhere(total.targets))
        for total in bucket.sums
    )
    return replace(bucket, sums=tuple(sums))


def buckets_of(binding: Binding) -> dict[int, Bucket]:
    """What tasks of this process add up, by number of the task."""
    plan = binding.plan
    tasks = (task for task in plan.tasks if task.nodes[0].kind in SUMS)
    return {task.id: bucket_of(plan, task, binding.specs) for task in tasks}


def sparse_rows(binding: Binding) -> dict[str, int]:
    """How many rows the sparse sums of this process have at most, by name."""
    plan = binding.plan
    limits = row_limits(plan.nodes, plan.missing, binding.specs)
    made = (v for node in plan.nodes if node.kind in SUMS for v in node.outputs if v.kind == "var")
    return {v.name: limits[v.device][v.name] for v in made if v.name in limits[v.device]}
