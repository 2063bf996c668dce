"""Runs plans on a ``distributed.Client``: state lives on the workers, steps are sent to them.

The program is sent once; every worker builds the same graph and plan from it. Steps are one dask
graph (:mod:`.task_runner`), or orders to a gang (:mod:`.gang_runner`). Only gradients, broadcast
values, fetches and mirrored state travel. The user's tensors are filled from the workers when they
are read. When workers are lost, their replicas move, and incomplete steps are made again
(:mod:`.recovery`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from dpexec.engine.cluster.client.binding_registry import BindingRegistry, News
from dpexec.engine.cluster.client.gang_runner import GangRunner
from dpexec.engine.cluster.client.handover import Holder
from dpexec.engine.cluster.client.idle_watch import IdleWatch
from dpexec.engine.cluster.client.lifetime import begin_run, end_run, forget
from dpexec.engine.cluster.client.open_run import OpenRun, may_come_later
from dpexec.engine.cluster.client.recovery import Recovery
from dpexec.engine.cluster.client.replica_group import ReplicaGroup
from dpexec.engine.cluster.client.step_outcome import (
    BoundBatch,
    StepOutcome,
    count_made,
    counted,
    requests,
)
from dpexec.engine.cluster.client.task_runner import TaskRunner
from dpexec.engine.cluster.client.units import home_of
from dpexec.engine.cluster.client.usual_runs import UsualRuns
from dpexec.engine.cluster.client.variables import Variables
from dpexec.engine.cluster.worker import worker as cluster_worker
from dpexec.engine.cluster.worker.recording import ClusterRecording
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.errors import ClusterError, WorkerLostError
from dpexec.engine.dask.waiting import Contact
from dpexec.engine.feeds.coming import Coming
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.ir.program import Program
from dpexec.engine.run.fetch import collect
from dpexec.engine.strategy.strategies import ExecutionStrategy
from dpexec.engine.threads.interrupts import InterruptGate
from dpexec.engine.trace.live import Keeper, Observers
from dpexec.engine.trace.processors import WorkerSamples

__all__ = ["ClusterRunner"]

ShardsOf = Callable[[Feeds, int], Sequence[Shard]]


class ClusterRunner:
    """Runs the plans of an engine on the workers of a cluster.

    Args:
        contact: talks to the cluster.
        spec: how program and plans are compiled.
        strategy: how steps are run, and what happens when workers are lost.
        replicas: the persistable variables, as the user sees them.
        label: the program whose runs are counted.
        observers: the observers of steps.
        coming: knows batches of later runs; None: nothing is known of them.

    Attributes:
        fetched: the fetched values of the latest step, per device.
        begun: the recording of a step until it ends; also if it failed.

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
        coming: Coming | None = None,
    ) -> None:
        self._contact, self.client = contact, contact.client
        self._runs, self._observers = replicas.scope.runs_of(label), observers
        contact.workers()  # fails fast without a scheduler; installing a plugin would wait
        self.token = begin_run(contact, self.client, contact.limit, spec.places)  # readers hold it
        try:
            self.group = ReplicaGroup(contact, self.token, spec, strategy.recovery == "mirror")
        except BaseException:  # its traceback keeps the contact alive, so the run would not end
            end_run(weakref.ref(self.client), self.token)
            raise
        orders = GangRunner if spec.collectives == "gang" else TaskRunner
        self._runner = orders(contact, self.group, coming)
        self._told = BindingRegistry(self.group)
        self._recovery = Recovery(self.group, self._told.forget, replicas.busy)
        self.variables = Variables(Holder(self.group, self._recovery, self._runner), replicas)
        parts = self.group, self._recovery, self._told, self.variables, observers, self._runs
        self._usual = UsualRuns(self._runner, *parts)
        self.fetched: Sequence[Mapping[str, Any]] = []
        self._open: OpenRun | None = None
        self.begun: ClusterRecording | None = None
        idle = self._recovery, self.group, weakref.WeakMethod(self._take)
        self._watch = IdleWatch(self.client, self.token, *idle)
        self.processors = WorkerSamples()
        self._recordings = LimitedCache[Binding, ClusterRecording](limit_of("bindings on workers"))

    @property
    def address(self) -> list[str]:
        """The worker of each replica."""
        return self.group.homes.address

    def _recording(self, binding: Binding) -> ClusterRecording:
        """Takes the notes of workers about a step of a binding, which begins."""
        if binding not in self._recordings:
            homes = [home_of(binding.plan, task.id) for task in binding.plan.tasks]
            self._recordings[binding] = ClusterRecording(binding, homes, self.processors)
        self._recordings[binding].begin()
        return self._recordings[binding]

    def close(self) -> None:
        """Free the state on the workers."""
        self._watch.close()
        self.variables.close()
        self._runner.part()
        homes = self.group.homes.workers
        self._contact.reach(forget, self.token, homes=homes, what="to free replicas")

    def ahead(self, batches: Sequence[Feeds]) -> None:
        """Send rows of coming batches to the workers that will be fed them, while these work.

        Args:
            batches: the feeds of later steps.
        """
        self._runner.ahead(batches)

    def _started(
        self, steps: Sequence[BoundBatch], shards_of: ShardsOf, wait: bool
    ) -> OpenRun | None:
        """Order the steps of a run, and wait for them if asked to; None if that is not enough."""
        bindings, recovery = [binding for binding, _ in steps], self._recovery
        plain = not self._observers.recorders and (wait or may_come_later(bindings[-1]))
        if not plain or recovery.lost or any(feeds.persistable for _, feeds in steps):
            return None
        if not recovery.look(self.variables.set_anew):
            return None
        news = self._told.news(bindings)
        if news.new or not self._runner.is_open or not self.variables.try_to_take(bindings):
            return None
        shards = [shards_of(feeds, ahead) for ahead, (_, feeds) in enumerate(steps)]
        wanted = requests(steps, news.keys, shards)
        counter = self._observers.counter
        with InterruptGate() as gate:
            gate.between_tasks = True
            if counter is not None:
                counter.begin(bindings[0])
            numbers = recovery.begin(len(wanted))
            finish = self._runner.start(wanted, numbers[0], wait)
            if finish is None:
                return None  # the run that waits lets replicas move
            self._open = run = OpenRun(wanted, numbers, news, counter, finish, self.settle)
            recovery.settle = self.settle
            self._runs.number += len(wanted)
            self.variables.defer(steps)
            if wait:
                run.wait(self._noted)
                self._usual.learn(run)
        return run

    def settle(self) -> None:
        """Wait for the run that was only ordered, if there is one, and take its outcome.

        Raises:
            EnforceNotMet: an operator failed in it; steps before count.
            ClusterError: workers were lost that cannot be replaced.
        """
        with self._recovery.busy:
            self._take()
            run, self._open, self._recovery.settle = self._open, None, None
            if run is not None:
                self.fetched = run.taken().fetched

    def _conclude(self, wait: bool) -> None:
        """What comes after the order of a run, also after an interrupt."""
        try:
            if wait:
                self.settle()
        finally:
            self.variables.bring_lists()

    def _take(self) -> None:
        """Note the outcome of the run that was only ordered, if there is one."""
        run = self._open
        if run is None or run.outcome is not None or run.error is not None:
            return
        steps = run.steps
        made, done = self._made(steps, [wanted.shards for wanted in run.wanted], None, run)
        lacking = len(steps) - done
        self._runs.number -= lacking
        if lacking or not made.fetched:
            run.error = made.error
        else:
            run.outcome, run.late = made, made.error
        if run.counter is not None:
            count_made(run.counter, steps, done, None if run.error else run.results())

    def run(
        self, steps: Sequence[BoundBatch], shards_of: ShardsOf, merged: bool, wait: bool = True
    ) -> list[Any]:
        """Make the steps of a run together; one after another while they are recorded.

        Workers have the order of one run at a time, so this waits for the run before.

        Args:
            steps: the bindings to run, and their feeds.
            shards_of: gives every device's part of the step that comes so many after the next one.
            merged: how to return fetches, see :func:`collect`.
            wait: if False, steps are only ordered where that is possible. The next run, or the
                next read of a result, raises their errors.

        Returns:
            The fetches of the last step, which may be :class:`Later`.

        Raises:
            ClusterError: workers were lost that cannot be replaced.
            EnforceNotMet: an operator failed; steps before count.
        """
        with self._recovery.busy:
            if self._open is not None:
                self.settle()
            usual = self._usual
            try:
                found = usual.of(steps, self.settle) if merged and wait else None
                if found is not None:
                    self.fetched = usual.fetched
                    self.variables.bring_lists()
                    return found
                run = usual.failed
                if run is None and merged:
                    run = self._started(steps, shards_of, wait)
            finally:
                self._open, usual.failed = self._open or usual.failed, None
                if self._open is not None:
                    self._conclude(wait)
        if run is not None:
            return run.results() if wait else run.fetches()
        while steps:
            recorders = self._observers.recorders
            now, steps = (steps[:1], steps[1:]) if recorders else (steps, ())
            make = partial(self._recorded, now, shards_of, merged, recorders)
            results = counted(self._observers.counter, now, self._runs, make)
        return results

    def _recorded(
        self,
        steps: Sequence[BoundBatch],
        shards_of: ShardsOf,
        merged: bool,
        recorders: Sequence[Keeper],
    ) -> list[Any]:
        """Make some steps together; completed ones count even if a later one fails."""
        self.begun = recording = self._recording(steps[0][0]) if recorders else None
        shards = [shards_of(feeds, ahead) for ahead, (_, feeds) in enumerate(steps)]
        made, done = self._made(steps, shards, recording)
        self._runs.number += done
        if made.error is None or not isinstance(made.error, ClusterError):
            self.variables.bring_lists()
        if made.error is not None:
            raise made.error
        plan, self.fetched = steps[-1][0].plan, made.fetched
        results = collect(made.fetched, plan.fetch, plan.sources, merged)
        if recording is not None:
            recording.end(recorders)
        self.begun = None
        return results

    def _made(
        self,
        steps: Sequence[BoundBatch],
        shards: Sequence[Sequence[Shard]],
        recording: ClusterRecording | None,
        begun: OpenRun | None = None,
    ) -> tuple[StepOutcome, int]:
        """Make some steps, even if workers are lost; returns their outcome, and how many are done.

        They may have been ordered before. An operator's error, an interrupt or a ``ClusterError``
        may end them early.
        """
        done, recovery = 0, self._recovery
        if begun is None:
            recovery.give_up()
        bindings = [binding for binding, _ in steps]
        fed = {name for _, feeds in steps for name in feeds.persistable or ()}

        def rest() -> StepOutcome:
            nonlocal done
            done += recovery.made_before_failure()
            # variables that were set after an order are for later steps
            if begun is None or recovery.lost is not None:
                self._get_ready(bindings, fed)
            while True:
                end = done + self._runner.together(bindings[done:])
                made = self._some_steps(steps[done:end], shards[done:end], recording)
                done += made.done
                if made.error is not None or done == len(steps):
                    return made

        with recovery.busy:
            try:
                if begun is None:
                    made = recovery.making(rest, self.variables.set_anew)
                else:
                    made, lost = self._finished(begun)
                    done += made.done
                    if lost is not None:
                        made = recovery.making(rest, self.variables.none_computed, lost)
            except BaseException as failed:
                recovery.see_what_was_made(failed)
                done += recovery.made_before_failure()
                made = StepOutcome(0, [], error=failed)
            if begun is None:
                self.variables.defer(steps[:done])
        return made, done

    def _finished(self, begun: OpenRun) -> tuple[StepOutcome, WorkerLostError | None]:
        """The outcome of ordered steps, or the error if workers were lost in them."""
        try:
            return self._noted(begun.finish(), begun.numbers, begun.news), None
        except WorkerLostError as lost:
            return StepOutcome(0, []), lost

    def _noted(self, made: StepOutcome, numbers: range, news: News) -> StepOutcome:
        """Note how many steps are complete.

        Raises:
            WorkerLostError: members are gone or silent.
        """
        if made.error is not None and made.lost:
            raise WorkerLostError(str(made.error), made.missing) from made.error
        if made.done:
            self.group.keep(numbers[made.done - 1])
            self.group.complete = numbers[made.done - 1]
        if made.error is not None:
            self._recovery.give_up()
            return made
        self._recovery.end(numbers[-1])
        if news.new:
            self._told.note(news)
        return made

    def _some_steps(
        self,
        steps: Sequence[BoundBatch],
        shards: Sequence[Sequence[Shard]],
        recording: ClusterRecording | None,
    ) -> StepOutcome:
        """Make steps by one graph, or by the members of a gang."""
        news = self._told.news([b for b, _ in steps])
        if recording is not None or not self._runner.tells:  # recording asks workers about it
            news = self._told.tell(news)
        wanted = requests(steps, news.keys, shards)
        if recording is not None:
            marks = partial(cluster_worker.marks, self.token, wanted[0].key)
            recording.connect(self._contact, self.group.homes.workers, marks)
        numbers = self._recovery.begin(len(steps))
        sent = time.perf_counter_ns()
        made = self._runner.run(wanted, numbers[0], recording is not None, news)
        made = self._noted(made, numbers, news)
        if recording is not None:
            recording.take(sent, self.address, made.noted)
        return made

    # ---- what comes before a step, and around it

    def _get_ready(self, bindings: Collection[Binding], fed: Collection[str]) -> None:
        """Let replicas move to workers that have joined, and send variables that the user set.

        Args:
            bindings: the bindings that will run.
            fed: names of persistable variables that will be fed.
        """
        recovery, grown = self._recovery, bool(fed) and self.group.own_also(fed)
        if recovery.lost is not None:
            if not self.variables.set_anew():
                raise recovery.lost
            self.group.restart()
            self._watch.listen()
            self._told.forget()
            self.variables.forget()
        elif self.group.look() or grown:
            recovery.regroup({})
        if not self.variables.try_to_take(bindings):
            self.variables.take(bindings)
            recovery.lost = None
