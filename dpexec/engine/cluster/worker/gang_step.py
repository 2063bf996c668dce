"""The steps of a gang, as one of its members makes them: the parts of its step runner."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from dpexec.engine.cluster.messages import GangStep, Noted
from dpexec.engine.cluster.worker.gang_tasks import BoundPlan, KnownSums
from dpexec.engine.cluster.worker.recording import noted_on_worker
from dpexec.engine.cluster.worker.side_by_side import Phase, helpers, side_by_side
from dpexec.engine.cluster.worker.step_groups import StepGroups
from dpexec.engine.cluster.worker.version_store import VersionStore
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.places import CUDAPlace, available_cpus
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.step_sums import PlanSums
from dpexec.engine.run.parts import Tasks
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.run.whole_code import WholeCode
from dpexec.engine.threads.prepared import Threads
from dpexec.engine.trace.recorder import Notes, OpenNotes, Steps

if TYPE_CHECKING:
    from dpexec.engine.cluster.worker.worker import WorkerReplicas

__all__ = ["GangSteps"]

_EXTENT = operator.attrgetter("first_sample", "samples", "weight", "share")
_NOTHING = contextlib.nullcontext()


class GangSteps:
    """Makes the steps of a member.

    Args:
        replicas: of the worker.
        group: the gang, as this member sees it.
        mirrored: names of what goes to the member that mirrors it, per device.
        threads: how many may work.
        groups: tells dask's scheduler what steps consist of.
    """

    def __init__(
        self,
        replicas: WorkerReplicas,
        group: Group,
        mirrored: Sequence[Collection[str]],
        threads: int,
        groups: StepGroups,
    ) -> None:
        self._groups = groups
        self._replicas, self._group, self._mirrored = replicas, group, mirrored
        self._mine = group.members[group.rank].devices
        self._bound: dict[int, BoundPlan] = {}
        self._sums = KnownSums(group)
        self._pool = helpers(len(self._mine), threads)
        self._store = VersionStore(replicas.stores, -1, mirrored)
        self._order, self._exchange = _SideBySide(self._pool), _GangExchange(replicas)
        parts = self._store, self._order, replicas.launch, self._exchange
        self._by_task = self._runner = StepRunner(*parts)
        if not isinstance(replicas.place, CUDAPlace):
            self._runner = StepRunner(*parts, code=self._code(min(threads, available_cpus())))

    def _code(self, threads: int) -> WholeCode:
        helping = Threads(threads - 1) if threads > 1 else None
        return WholeCode(self._store, self._fetch, helping, threads, self._exchange)

    def _fetch(self, plan: Plan, envs: Sequence[Env], merged: bool) -> list[Any]:
        """What a step of code fetches, as the launch does it for tasks."""
        launch = self._replicas.launch
        return launch.fetch(plan, envs, merged, None) if self._order.fetches else []

    def make(self, step: GangStep, last: bool) -> tuple[dict[int, dict[str, Any]], Noted | None]:
        """Make a step of the replicas of this member.

        Args:
            step: what is made.
            last: whether its fetches are wanted.

        Returns:
            The fetches by device and name, and what was recorded.
        """
        bound = self._bind(step)
        watching = self._groups.begin(step.number, step.binding, bound.binding)
        self._store.settle()  # all members have made the step before
        bound.step, bound.recorded = step.number, step.recorded or bool(watching)
        if bound.sums is not None:
            bound.sums.sums.begin(bound.turn)
        self._store.go_on(step.number)
        self._order.bound = self._exchange.bound = bound
        self._order.fetches = last
        noting = _Noting(bound) if step.recorded else None
        runner = self._by_task if step.recorded else self._runner
        recorders = watching if noting is None else (noting, *watching)
        self._exchange.shards = shards = step.shards  # by device, of this member's ones
        given: Any = step  # it has the fields of Feeds that a store looks at
        found: Any = shards
        try:
            fetched = runner.step(bound.binding, given, lambda: found, True, recorders)
        finally:
            runner.envs = []
        self._groups.end()
        noted = None if noting is None else noting.noted
        return {device: fetched[device] for device in self._mine if last}, noted

    def _bind(self, step: GangStep) -> BoundPlan:
        """What runs in a step."""
        replicas, number = self._replicas, step.binding
        base = replicas.numbered(number, step.rows)
        if number not in self._bound:
            self._bound = {n: bound for n, bound in self._bound.items() if replicas.knows(n)}
            how = self._group, self._sums, self._mirrored, step.persistable
            self._bound[number] = BoundPlan(base, *how)
        self._bound[number].resize(base)
        return self._bound[number]

    def close(self) -> None:
        """Let helping threads end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class _SideBySide:
    """The order of tasks on a member: its replicas at the same time, between collectives of all.

    Args:
        pool: threads that help.

    Attributes:
        bound: the plan that runs.
        fetches: whether fetches are wanted.
    """

    def __init__(self, pool: ThreadPoolExecutor | None) -> None:
        self._pool, self.fetches = pool, True
        self.bound: BoundPlan

    def run(self, tasks: Tasks) -> list[Any]:
        """Run the member's tasks, see :meth:`Order.run`."""
        self._run(self.bound.before, tasks)
        tasks.begin_updates()
        self._run(self.bound.after, tasks)
        return tasks.fetch() if self.fetches else []

    def _run(self, parts: Sequence[Sequence[Phase]], tasks: Tasks) -> None:
        def run(numbers: Sequence[int]) -> None:
            for number in numbers:
                tasks.run(number)

        for part in parts:
            for phase in part:
                side_by_side(run, phase, self._pool)
            self.bound.finish()


class _GangExchange:
    """Values meet in the plan's collectives, whose calls know the gang.

    Args:
        replicas: of the worker.

    Attributes:
        bound: the plan that runs.
        shards: parts of the run of the devices here.
    """

    def __init__(self, replicas: WorkerReplicas) -> None:
        self._replicas = replicas
        self.bound: BoundPlan
        self.shards: Any = {}

    def step(self) -> AbstractContextManager[None]:
        """Around a step comes nothing: who fails in one leaves the gang."""
        return _NOTHING

    @property
    def sums(self) -> PlanSums | None:
        """What adds up values of all members; None: there is only this one."""
        return self.bound.sums

    def extent(self, samples: Sequence[int]) -> Any:
        """What numbers of a step depend on, see :meth:`CodeExchange.extent`."""
        return tuple(map(_EXTENT, self.shards.values()))

    def barrier(self) -> None:
        """Wait for all members.

        Only then has every member made the step before. Until then, one that is a step behind
        needs others to know the values of the step before that.
        """
        if self.bound.sums is not None:
            self.bound.sums.sums.wait_for_all()

    def mirror(self, made: Callable[[int, str], Any]) -> None:
        """Give the member that mirrors them what only replicas of this one have."""
        self.bound.mirroring.exchange(self.bound.step, made, self._replicas.mirrors)


class _Noting:
    """Takes what a recorded step has noted on this worker.

    Args:
        bound: the plan.

    Attributes:
        noted: that; None: the step is not over, or not recorded.
    """

    def __init__(self, bound: BoundPlan) -> None:
        self._bound = bound
        self.noted: Noted | None = None

    def keep(self, notes: Notes) -> None:
        """See :meth:`Keeper.keep`."""
        self.noted = noted_on_worker(self._bound.binding.recording)

    def follow(self, notes: OpenNotes) -> Steps:
        """See :meth:`Keeper.follow`: only whole steps of code note like that."""
        raise RuntimeError("recorded steps of a gang run task by task")
