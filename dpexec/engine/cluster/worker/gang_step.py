"""The steps of one member of a gang: the parts of its step runner."""

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
        replicas: the replicas of the worker.
        group: the gang, as this member sees it.
        mirrored: per device, names of the variables that are sent to the member that mirrors it.
        threads: how many threads may work.
        groups: tells dask's scheduler which tasks steps consist of.
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
        launch, order = self._replicas.launch, self._order  # not this object, which knows the code
        helping = Threads(threads - 1) if threads > 1 else None

        def fetch(plan: Plan, envs: Sequence[Env], merged: bool) -> list[Any]:
            """The fetches of a step of code, copied as the launch does it for tasks."""
            return launch.fetch(plan, envs, merged, None) if order.fetches else []

        return WholeCode(self._store, fetch, helping, threads, self._exchange)

    def make(self, step: GangStep, last: bool) -> tuple[dict[int, dict[str, Any]], Noted | None]:
        """Make a step of the replicas of this member.

        Args:
            step: the step.
            last: whether its fetches are wanted.

        Returns:
            The fetches by device and name, and the notes if the step is recorded.
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
        self._exchange.shards = shards = step.shards  # of this member's devices, by device
        given: Any = step  # it has the fields of Feeds that a store reads
        found: Any = shards
        try:
            fetched = runner.step(bound.binding, given, lambda: found, True, recorders)
        finally:
            runner.envs = []
        self._groups.end()
        noted = None if noting is None else noting.noted
        return {device: fetched[device] for device in self._mine if last}, noted

    def broken_off(self) -> Noted | None:
        """The notes of the recorded step that failed; None if none had begun to work."""
        begun, self._by_task.begun = self._by_task.begun, None
        return None if begun is None or not begun.noted[-1] else noted_on_worker(begun)

    def _bind(self, step: GangStep) -> BoundPlan:
        """The bound plan of a step."""
        replicas, number = self._replicas, step.binding
        base = replicas.numbered(number, step.rows)
        if number not in self._bound:
            self._bound = {n: bound for n, bound in self._bound.items() if replicas.knows(n)}
            how = self._group, self._sums, self._mirrored, step.persistable
            self._bound[number] = BoundPlan(base, *how)
        self._bound[number].resize(base)
        return self._bound[number]

    def close(self) -> None:
        """End the helping threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)


class _SideBySide:
    """The order of tasks on a member: its replicas run at the same time, between collectives.

    Args:
        pool: helping threads; None: there are none.

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
    """The exchange with other members, which the calls of the plan's collectives make.

    Args:
        replicas: the replicas of the worker.

    Attributes:
        bound: the plan that runs.
        shards: this member's devices' parts of the run.
    """

    def __init__(self, replicas: WorkerReplicas) -> None:
        self._replicas = replicas
        self.bound: BoundPlan
        self.shards: Any = {}

    def step(self) -> AbstractContextManager[None]:
        """An empty context: a member whose step fails leaves the gang elsewhere."""
        return _NOTHING

    @property
    def sums(self) -> PlanSums | None:
        """The sums over all members; None if there is only this one."""
        return self.bound.sums

    def extent(self, samples: Sequence[int]) -> Any:
        """A key of the parts of the batch here, see :meth:`CodeExchange.extent`."""
        return tuple(map(_EXTENT, self.shards.values()))

    def barrier(self) -> None:
        """Wait for all members.

        After it, every member has made the step before. Until then, a member may be a step behind,
        and all must be able to go back to the step that it has made.
        """
        if self.bound.sums is not None:
            self.bound.sums.sums.wait_for_all()

    def mirror(self, new_value: Callable[[int, str], Any]) -> None:
        """Send own state of this member's replicas to the members that mirror it."""
        self.bound.mirroring.exchange(self.bound.step, new_value, self._replicas.mirrors)


class _Noting:
    """Takes the notes of a recorded step on this worker.

    Args:
        bound: the plan that runs.

    Attributes:
        noted: the notes; None until the step is over.
    """

    def __init__(self, bound: BoundPlan) -> None:
        self._bound = bound
        self.noted: Noted | None = None

    def keep(self, notes: Notes) -> None:
        """See :meth:`Keeper.keep`."""
        self.noted = noted_on_worker(self._bound.binding.recording)

    def follow(self, notes: OpenNotes) -> Steps:
        """See :meth:`Keeper.follow`: only whole steps of code are followed."""
        raise RuntimeError("recorded steps of a gang run task by task")
