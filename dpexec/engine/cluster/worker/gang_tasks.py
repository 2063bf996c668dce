"""The tasks that a member of a gang runs: those of its replicas, and all collectives."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dpexec.engine.cluster.worker.mirrors import Mirroring
from dpexec.engine.cluster.worker.side_by_side import Phase, phases
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.partition import Task
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.compile.regions.step import CollectiveCall
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.gpus import Staged
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.nccl_sums import ByNccl, divided
from dpexec.engine.exchange.plan_sums import ExchangedSum, buckets_of, sparse_rows, step_sums
from dpexec.engine.exchange.reducers import Reducer
from dpexec.engine.exchange.step_sums import PlanSums, StepSums
from dpexec.engine.exchange.wire import Tag

__all__ = ["BoundPlan", "KnownSums"]


class KnownSums:
    """The sums over all members; plans with equal sums share them.

    Args:
        group: the gang.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known: LimitedCache[Any, StepSums] = LimitedCache(limit_of("sums of a gang"))

    def of(self, buckets: Sequence[Bucket], rows: Mapping[str, int]) -> StepSums:
        """The sums of some buckets; all members ask for them at the same time.

        Args:
            buckets: the sums.
            rows: the most rows of sparse sums, by name.

        Raises:
            GangError: a member does not answer.
            OSError: there is not enough memory.
        """
        key = tuple((bucket.sums, bucket.late) for bucket in buckets), tuple(rows.items())
        found = self._known.used(key)
        if found is None:
            numbered = [replace(bucket, number=n) for n, bucket in enumerate(buckets)]
            rooms = {name: [count] for name, count in rows.items()}
            found = self._known[key] = step_sums(self._group, numbered, rooms)
        return found


class _OnGpu:
    """The call that replaces the nodes of a collective task on GPUs.

    Args:
        bucket: the sums.
        reducer: adds them up.
        bound: the plan that it belongs to.
    """

    def __init__(self, bucket: Bucket, reducer: Reducer, bound: BoundPlan) -> None:
        self._bucket, self._reducer, self._bound = bucket, reducer, bound

    def __call__(self, envs: Sequence[Env]) -> None:
        self._reducer.run(envs, Tag(self._bound.turn, self._bucket.number, self._bucket.text))
        if self._bound.recorded:
            self._bound.finish()  # a recorded task ends when its sums are there


class _InStep:
    """Adds up a bucket by the sums of its step, see :class:`Reducer`.

    Args:
        sums: the sums of the step.
        number: of the bucket.
    """

    def __init__(self, sums: StepSums, number: int) -> None:
        self._sums, self._number = sums, number

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket."""
        self._sums.run(self._number, envs)


class BoundPlan:
    """A plan as a member runs it, for batches of certain shapes.

    Args:
        base: the plan with its specs and code.
        group: the gang, as this member sees it.
        known: the sums of all plans.
        mirrored: names of mirrored variables, per device.
        fed: names of feeds that also set a persistable variable.

    Attributes:
        step: number of the step that is made.
        recorded: whether it notes when tasks run.
        sums: the sums over all members; None if there is only this one.
        before: the tasks of this member before variables may be overwritten, in parts. After each
            part it waits for the collectives that GPUs still work on.
        after: the tasks after these, likewise.
        mirroring: exchanges mirrored state with other members.
    """

    def __init__(
        self,
        base: Binding,
        group: Group,
        known: KnownSums,
        mirrored: Sequence[Collection[str]],
        fed: Collection[str],
    ) -> None:
        plan = self.plan = base.plan
        self.group, self.step, self.recorded = group, -1, False
        self._base: Binding | None = None
        self.binding: Binding
        self.sums: PlanSums | None = None
        self._calls = self._add_up(base.opened or base, known) if len(group.members) > 1 else {}
        self.resize(base)
        first = min(plan.updates, default=len(plan.tasks))
        self.before = self._parts(plan.tasks[:first])
        self.after = self._parts(plan.tasks[first:])
        self.mirroring = Mirroring(group, plan, mirrored, fed)

    def resize(self, base: Binding) -> None:
        """Run the plan for other numbers of rows; its collectives do not depend on them.

        Args:
            base: the plan with its specs and code for these numbers.
        """
        if base is not self._base:
            self._base, self.binding = base, base.calling(self._calls)

    def _add_up(self, base: Binding, known: KnownSums) -> dict[int, CollectiveCall]:
        """The calls of collective tasks, by number of the task."""
        group, place = self.group, self.plan.graph.places[0]
        buckets = buckets_of(base, [task for task in self.plan.tasks if task.is_collective])
        found = buckets.items()
        if not isinstance(place, CUDAPlace):
            sums = known.of([*buckets.values()], sparse_rows(base))
            made = self.sums = PlanSums(sums, {task: n for n, task in enumerate(buckets)})
            return {task: ExchangedSum(n, lambda: made) for task, n in made.buckets.items()}
        parts = {task: (None, b) if group.nccl is None else divided(b, group) for task, b in found}
        sums = known.of([rest for _, rest in parts.values()], sparse_rows(base))
        self.sums = PlanSums(sums, {task: n for n, task in enumerate(parts)})
        mine = group.members[group.rank].devices
        calls: dict[int, CollectiveCall] = {}
        for number, (task, (served, rest)) in enumerate(parts.items()):
            left = Staged(rest, mine, place, _InStep(sums, number)) if rest.sums else None
            reducer: Reducer | None = left
            if served is not None and group.nccl is not None:
                reducer = ByNccl(group, served, group.nccl, place, left)
            assert reducer is not None
            calls[task] = _OnGpu(buckets[task], reducer, self)
        return calls

    def _parts(self, tasks: Sequence[Task]) -> list[list[Phase]]:
        """This member's tasks among some tasks, in parts; all members divide them alike."""
        nccl = self.group.nccl is not None
        parts: list[list[Task]] = [[]]
        begun: set[int] = set()  # collectives that a GPU may still work on
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

    @property
    def turn(self) -> int:
        """The number of the step in messages and words; it is above 0, with which words begin."""
        return self.step + 1

    def finish(self) -> None:
        """Wait for collectives that GPUs may still work on."""
        if self.group.nccl is not None:
            self.group.nccl.finish(self.turn)
