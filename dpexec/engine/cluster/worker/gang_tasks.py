"""What a member of a gang runs: its tasks of a plan, and all collectives."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.engine.cluster.worker.mirrors import Mirroring
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.exchange.buckets import Bucket, bucket_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.nccl_sums import ByNccl, divided
from dpexec.engine.exchange.reducers import Reducer, reducer_of
from dpexec.engine.exchange.side_by_side import Phase, phases
from dpexec.engine.exchange.staged import Staged
from dpexec.engine.exchange.wire import Tag

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
        if self._bound.recorded:
            self._bound.finish()  # so that it ends when its sums are there


class BoundPlan:
    """What a member runs for batches of some shapes.

    Args:
        base: the plan with its specs and code.
        group: the gang, as this member sees it.
        mirrored: names of what is mirrored, per device.
        fed: names of what is fed that also sets a variable.

    Attributes:
        step: number of the step that is made.
        recorded: whether it notes when tasks run.
        before: the tasks that it takes part in until variables may be overwritten; in parts,
            after each of which all collectives must have come to their end.
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
        self.group, self.step, self.recorded = group, -1, False
        self._base: Binding | None = None
        self.binding: Binding
        self.collectives = {
            task.id: _Collective(bucket_of(plan, task, base.specs), self)
            for task in plan.tasks
            if task.is_collective
        }
        self.resize(base)
        first = min(plan.updates, default=len(plan.tasks))
        self.before = self._parts(plan.tasks[:first])
        self.after = self._parts(plan.tasks[first:])
        self.mirroring = Mirroring(group, plan, mirrored, fed)
        self.waits = len(group.members) > 1 and not self._meet_before(first, group)

    def resize(self, base: Binding) -> None:
        """Run what was bound for other numbers of rows, which collectives do not depend on.

        Args:
            base: the plan with its specs and code.
        """
        if base is not self._base:
            self._base, self.binding = base, base.calling(self.collectives)

    def _parts(self, tasks: Sequence[Task]) -> list[list[Phase]]:
        """What this member does of some tasks; all members divide them at the same ones."""
        nccl = self.group.nccl is not None
        parts: list[list[Task]] = [[]]
        begun: set[int] = set()  # collectives that a GPU may still be at
        for task in tasks:
            if not begun.isdisjoint(task.after):
                parts.append([])
                begun.clear()
            parts[-1].append(task)
            begun |= {task.id} if nccl and task.is_collective else set()
        mine = self.group.members[self.group.rank].devices
        return [
            phases(task for task in part if task.is_collective or task.device in mine)
            for part in parts
        ]

    def finish(self) -> None:
        """Wait for collectives that GPUs may still be at."""
        if self.group.nccl is not None:
            self.group.nccl.finish(self.step)

    def reducer(self, bucket: Bucket) -> Reducer:
        """What adds up a bucket of this member's replicas with those of the others."""
        group, place = self.group, self.plan.graph.places[0]
        if not isinstance(place, CUDAPlace):
            return reducer_of(group, bucket)
        if group.nccl is None:
            return self._staged(bucket, place)
        served, rest = divided(bucket, group)
        left = self._staged(rest, place) if rest.sums else None
        return ByNccl(group, served, group.nccl, place, left)

    def _staged(self, bucket: Bucket, place: CUDAPlace) -> Reducer:
        mine = self.group.members[self.group.rank].devices
        return Staged(bucket, mine, place, reducer_of(self.group, bucket))

    def _meet_before(self, first: int, group: Group) -> bool:
        """Whether all members come to a collective after all that can fail before a task."""
        for task in reversed(self.plan.tasks[:first]):
            if task.is_collective and self.collectives[task.id].bucket.for_all(len(group.home)):
                return True  # nobody leaves it before all have come
            if any(node.role in ("forward", "backward") for node in task.nodes):
                break
        return False
