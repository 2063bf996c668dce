"""What a member of a gang runs: its tasks of a plan, and all collectives."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.core.places import CUDAPlace
from dpexec.runtime.binding import Binding
from dpexec.runtime.env import Env
from dpexec.runtime.gang.buckets import Bucket, bucket_of
from dpexec.runtime.gang.group import Group
from dpexec.runtime.gang.mirrors import Mirroring
from dpexec.runtime.gang.reducers import Reducer, reducer_of
from dpexec.runtime.gang.side_by_side import stretches
from dpexec.runtime.gang.staged import Staged
from dpexec.runtime.gang.wire import Tag

__all__ = ["BoundPlan"]


class _Collective:
    """The call that stands for the nodes of a collective task.

    Args:
        bucket: what it adds up.
        bound: the plan that it belongs to.
    """

    def __init__(self, bucket: Bucket, bound: BoundPlan) -> None:
        self.bucket, self._bound = bucket, bound
        self._reducer: Reducer | None = None

    def __call__(self, envs: Sequence[Env]) -> None:
        if self._reducer is None:
            self._reducer = self._bound.reducer(self.bucket)
        self._reducer.run(envs, Tag(self._bound.step, self.bucket.number, self.bucket.text))


class BoundPlan:
    """What a member runs for batches of some shapes.

    Args:
        base: the plan with its specs and code.
        group: the gang, as this member sees it.
        mirrored: names of what is mirrored, per device.
        fed: names of what is fed that also sets a variable.

    Attributes:
        step: number of the step that is made.
        before: the tasks that it takes part in until variables may be overwritten.
        after: those that come then.
        waits: whether it waits in between for all members, who do not come together anyhow.
        mirroring: what members keep for each other.
    """

    def __init__(
        self,
        base: Binding,
        group: Group,
        mirrored: Sequence[Collection[str]],
        fed: Collection[str],
    ) -> None:
        plan = self.plan = base.plan
        self.group, self.step = group, -1
        self.collectives = {
            task.id: _Collective(bucket_of(plan, task, base.specs), self)
            for task in plan.tasks
            if task.is_collective
        }
        self.binding = base.calling(self.collectives)
        mine = group.members[group.rank].devices
        tasks = [task for task in plan.tasks if task.is_collective or task.device in mine]
        first = min(plan.updates, default=len(plan.tasks))
        self.before = stretches(task for task in tasks if task.id < first)
        self.after = stretches(task for task in tasks if task.id >= first)
        self.mirroring = Mirroring(group, plan, base.specs, mirrored, fed)
        self.waits = len(group.members) > 1 and not self._meet_before(first, group)

    def reducer(self, bucket: Bucket) -> Reducer:
        """What adds up a bucket of this member's replicas with those of the others."""
        group = self.group
        mine, made = group.members[group.rank].devices, reducer_of(group, bucket)
        place = self.plan.graph.places[mine[0]]
        return Staged(bucket, mine, place, made) if isinstance(place, CUDAPlace) else made

    def _meet_before(self, first: int, group: Group) -> bool:
        """Whether all members come to a collective after all that can fail before a task."""
        for task in reversed(self.plan.tasks[:first]):
            if task.is_collective and self.collectives[task.id].bucket.for_all(len(group.home)):
                return True  # nobody leaves it before all have come
            if any(node.role in ("forward", "backward") for node in task.nodes):
                break
        return False
