"""The tasks of a plan that add up values of several processes, and the objects that do it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.bindings.row_limits import row_limits
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import Bucket, bucket_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.step_sums import PlanSums, Rooms, StepSums
from dpexec.engine.exchange.wire_sums import WireSums
from dpexec.engine.ir.sizes import at_most

__all__ = ["ExchangedSum", "buckets_of", "sparse_rows", "step_sums"]


def step_sums(group: Group, buckets: Sequence[Bucket], rooms: Rooms, first: int = 0) -> StepSums:
    """The sums of a step among the members of a group; all members call it at the same time.

    Args:
        group: the members.
        buckets: the sums over the devices of all members. A bucket's number is its position here.
        rooms: the most rows of sparse values.
        first: the number that the plan's first device has in the group.

    Raises:
        GangError: a member does not answer.
        OSError: there is not enough memory.
    """
    if group.has_words:
        from dpexec.engine.exchange.memory_sums import MemorySums  # needs numba

        return MemorySums(group, buckets, rooms, first)
    return WireSums(group, buckets, rooms, first)


class ExchangedSum:
    """The call that replaces the nodes of a collective task.

    Args:
        number: of the bucket.
        sums: gives the sums of the step that runs.
    """

    def __init__(self, number: int, sums: Callable[[], PlanSums]) -> None:
        self._number, self._sums = number, sums

    def __call__(self, envs: Sequence[Env]) -> None:
        """Add up the bucket, and give the sums to the devices that get them."""
        self._sums().sums.run(self._number, envs)


def buckets_of(binding: Binding, tasks: Sequence[Task]) -> dict[int, Bucket]:
    """The buckets of some tasks, by number of the task.

    Args:
        binding: the binding that runs.
        tasks: the collective tasks that other processes take part in.
    """
    plan = binding.plan
    found = {task.id: bucket_of(plan, task, binding.given) for task in tasks}
    return {n: replace(bucket, late=n in plan.behind_updates) for n, bucket in found.items()}


def sparse_rows(binding: Binding) -> dict[str, int]:
    """The most rows of a plan's sparse sums, by name, in the order of the names."""
    plan = binding.plan
    limits = row_limits(plan.nodes, plan.missing, binding.given)
    sums = (node for node in plan.nodes if node.does.combines)
    made = (var for node in sums for var in node.outputs if var.kind == "var")
    found = {v.name: limits[v.device][v.name] for v in made if v.name in limits[v.device]}
    return {name: at_most(found[name]) for name in sorted(found)}
