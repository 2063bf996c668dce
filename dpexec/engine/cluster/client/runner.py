"""The plan on a ``distributed.Client``: state lives on the workers, steps are sent to them.

Every worker builds the same graph and plan from the program, which is sent once. Steps are
one dask graph (:mod:`.task_runner`), or orders to a gang (:mod:`.gang_runner`). Between workers
travel only gradients, broadcast values and fetches, and what is mirrored. The user's tensors are
filled from the workers when somebody reads them. When workers are lost, their replicas move, and
what was not complete is done again (:mod:`.recovery`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from dpexec.engine.cluster.client.binding_registry import BINDINGS_KEPT, BindingRegistry
from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.client.lifetime import begin_run, end_run, forget
from dpexec.engine.cluster.client.recovery import Recovery
from dpexec.engine.cluster.client.replica_group import ReplicaGroup
from dpexec.engine.cluster.client.step_outcome import StepOutcome, StepRequest
from dpexec.engine.cluster.client.task_runner import TaskRunner
from dpexec.engine.cluster.client.units import home_of
from dpexec.engine.cluster.client.variables import Variables
from dpexec.engine.cluster.messages import BindingKey
from dpexec.engine.cluster.worker import worker as cluster_worker
from dpexec.engine.cluster.worker.recording import ClusterRecording
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.cache import LimitedCache
from dpexec.engine.core.errors import ClusterError, WorkerLostError
from dpexec.engine.dask.waiting import Contact
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import collect
from dpexec.engine.strategy.strategies import ExecutionStrategy
from dpexec.engine.trace.live import Counter, Keeper, Observers

__all__ = ["ClusterRunner"]

BoundBatch = tuple[Binding, Feeds]
"""What runs in a step, and what the devices are fed."""

ShardsOf = Callable[[Feeds, int], Sequence[Shard]]


class ClusterRunner:
    """Runs the plans of an engine on the workers of a cluster.

    Args:
        contact: how the cluster is talked to.
        spec: how program and plans are compiled.
        strategy: how steps are run, and what is done in case workers are lost.
        replicas: the persistable variables, as the user sees them.
        label: the program whose runs are counted.
        observers: who looks at steps.

    Attributes:
        fetched: what the latest step gave, per device.

    Raises:
        ClusterError: the cluster has no workers, or the client is closed.
    """

    def __init__(
        self,
        contact: Contact,
        spec: Compilation,
        strategy: ExecutionStrategy,
        replicas: Replicas,
        label: Program,
        observers: Observers,
    ) -> None:
        self._contact, self.client = contact, contact.client
        self._scope, self._label, self._observers = replicas.scope, label, observers
        self._contact.workers()  # whether the scheduler is there: a plugin would wait for long
        self.token = begin_run(
            contact, self.client, contact.limit
        )  # held by whoever reads state, too
        mirrored = strategy.recovery == "mirror"
        try:
            self.group = ReplicaGroup(self._contact, self.token, spec, mirrored)
        except BaseException:  # which holds the contact as long as somebody looks at it
            end_run(weakref.ref(self.client), self.token)
            raise
        runner = GangRunner if spec.collectives == "gang" else TaskRunner
        self._runner = runner(self._contact, self.group)
        self._told = BindingRegistry(self.group)
        self._recovery = Recovery(self.group, self._told.forget)
        self.variables = Variables(self.group, self._recovery, replicas)
        self.fetched: Sequence[Mapping[str, Any]] = []
        self._recordings: LimitedCache[Binding, ClusterRecording] = LimitedCache(BINDINGS_KEPT)

    @property
    def address(self) -> list[str]:
        """The worker of each replica."""
        return self.group.homes.address

    def _recording(self, binding: Binding) -> ClusterRecording:
        """What takes what workers record of a binding's steps."""
        if binding not in self._recordings:
            self._recordings[binding] = ClusterRecording(binding)
        return self._recordings[binding]

    def close(self) -> None:
        """Free the state on the workers."""
        self._runner.part()
        homes = self.group.homes.workers
        self._contact.reach(forget, self.token, homes=homes, what="to free replicas")

    def run(self, steps: Sequence[BoundBatch], shards_of: ShardsOf, merged: bool) -> list[Any]:
        """Make the steps of a run together; one after another while somebody records them.

        Args:
            steps: what runs, and what the devices are fed.
            shards_of: gives every device's part of a step, so many after the next one.
            merged: how to return fetches, see :func:`collect`.

        Returns:
            The fetches of the last step.

        Raises:
            ClusterError: workers were lost that cannot be replaced.
            EnforceNotMet: an operator failed; steps before count.
        """
        results: list[Any] = []
        while steps:
            recorders = self._observers.recorders
            now, steps = (steps[:1], steps[1:]) if recorders else (steps, ())
            results = self._counted(now, shards_of, merged, recorders)
        return results

    def _counted(
        self,
        steps: Sequence[BoundBatch],
        shards_of: ShardsOf,
        merged: bool,
        recorders: Sequence[Keeper],
    ) -> list[Any]:
        """Make some steps together, and tell who counts them."""
        counter, before = self._observers.counter, self._runs()
        if counter is not None:
            counter.begin(steps[0][0])
        results = None
        try:
            results = self._recorded(steps, shards_of, merged, recorders)
            return results
        finally:
            if counter is not None:
                _count(counter, steps, self._runs() - before, results)

    def _runs(self) -> int:
        return self._scope.run_count(self._label)

    def _recorded(
        self,
        steps: Sequence[BoundBatch],
        shards_of: ShardsOf,
        merged: bool,
        recorders: Sequence[Keeper],
    ) -> list[Any]:
        """Make some steps together; those that were completed count, also if one fails."""
        recording = self._recording(steps[0][0]) if recorders else None
        if recording is not None:
            recording.begin()
        shards = [shards_of(feeds, ahead) for ahead, (_, feeds) in enumerate(steps)]
        made, done = self._made(steps, shards, recording)
        for _ in range(done):
            self._scope.count_run(self._label)
        if not isinstance(made.error, ClusterError):
            self.variables.bring_lists()
        if made.error is not None:
            raise made.error
        plan, self.fetched = steps[-1][0].plan, made.fetched
        results = collect(made.fetched, plan.fetch, plan.active, merged)
        if recording is not None:
            recording.end(recorders)
        return results

    def _made(
        self,
        steps: Sequence[BoundBatch],
        shards: Sequence[Sequence[Shard]],
        recording: ClusterRecording | None,
    ) -> tuple[StepOutcome, int]:
        """Make some steps, whatever workers are lost; how many were completed.

        They may have ended early: by an operator's error, an interrupt, or a ``ClusterError``.
        """
        done, recovery = 0, self._recovery
        recovery.give_up()
        bindings = [binding for binding, _ in steps]

        def rest() -> StepOutcome:
            nonlocal done
            done += recovery.made_before_failure()
            fed = frozenset[str]().union(*(feeds.persistable for _, feeds in steps))
            self._get_ready({binding.plan: None for binding in bindings}, fed)
            while True:
                end = done + self._runner.together(bindings[done:])
                made = self._some_steps(steps[done:end], shards[done:end], recording)
                done += made.done
                if made.error is not None or done == len(steps):
                    return made

        with recovery.busy:
            try:
                made = recovery.surviving(rest)
            except BaseException as failed:
                recovery.see_what_was_made(failed)
                done += recovery.made_before_failure()
                made = StepOutcome(0, [], error=failed)
            for binding, feeds in steps[:done]:
                self.variables.defer(binding, feeds)
        return made, done

    def _some_steps(
        self,
        steps: Sequence[BoundBatch],
        shards: Sequence[Sequence[Shard]],
        recording: ClusterRecording | None,
    ) -> StepOutcome:
        """Make steps by one graph, or by the members of a gang."""
        news = self._told.news([binding for binding, _ in steps])
        if recording is not None or not self._runner.tells:  # who records asks about the binding
            news = self._told.tell(news)
        wanted = [
            StepRequest(binding, key, feeds, parts)
            for (binding, feeds), key, parts in zip(steps, news.keys, shards, strict=True)
        ]
        self._connect(recording, wanted[0].key)
        numbers = self._recovery.begin(len(steps))
        sent = time.perf_counter_ns()
        made = self._runner.run(wanted, numbers[0], recording is not None, news)
        if made.lost:
            raise WorkerLostError(str(made.error), made.missing) from made.error
        if made.done:
            self.group.complete = numbers[made.done - 1]
        if made.error is not None:
            self._recovery.give_up()
            return made
        self._recovery.end(numbers[-1])
        self._told.note(news)
        if recording is not None:
            plan = wanted[-1].binding.plan
            homes = [home_of(plan, task.id) for task in plan.tasks]
            recording.take(sent, homes, self.address, [n for n in made.noted if n is not None])
        return made

    # ---- what comes before a step, and around it

    def _get_ready(self, plans: Iterable[Plan], fed: frozenset[str]) -> None:
        """Let replicas move to workers that have joined, and take what the user wrote.

        Args:
            plans: what will run.
            fed: names of persistable variables that will be fed.
        """
        recovery = self._recovery
        grown = self.group.own_also(fed)
        taken = self.variables.taken
        if recovery.lost is not None:
            if taken:
                raise recovery.lost
            self.group.restart()
            self._told.forget()
            self.variables.forget()
        elif self.group.look() or grown:
            recovery.regroup({})
        if not taken:
            self.variables.take(plans)
            recovery.lost = None

    def _connect(self, recording: ClusterRecording | None, key: BindingKey) -> None:
        if recording is not None:
            marks = partial(cluster_worker.marks, self.token, key)
            recording.connect(self._contact, self.group.homes.workers, marks)


def _count(
    counter: Counter, steps: Sequence[BoundBatch], done: int, results: Sequence[Any] | None
) -> None:
    """Tell a counter, who knows that the first step began, of steps that workers made together.

    Args:
        counter: who.
        steps: what was to run, on what.
        done: how many steps are complete.
        results: what the last one gave; None: a step failed.
    """
    for index, (binding, feeds) in enumerate(steps[: done + (results is None)]):
        if index:
            counter.begin(binding)
        unknown = [None for _ in binding.plan.fetch]
        last = results is not None and index == done - 1
        counter.end(feeds.samples, results if last else unknown if index < done else None)
