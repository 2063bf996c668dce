"""The plan on a ``distributed.Client``: state lives on the workers, steps are sent to them.

Every worker builds the same graph and plan from the program, which is sent once. Steps are
one dask graph (:mod:`.task_runner`), or what a gang does. Between workers travel only
gradients, broadcast values and fetches, and what is mirrored. The user's tensors are filled from
the workers when somebody reads them. When workers are lost, their replicas move, and what was not
complete is done again (:mod:`.recovery`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from dpexec.core.kept import Kept
from dpexec.errors import WorkerLostError
from dpexec.runtime.binding import Binding
from dpexec.runtime.client.lifetime import begin_run, end_run, forget
from dpexec.runtime.client.made import Made, Wanted
from dpexec.runtime.client.recovery import Recovery
from dpexec.runtime.client.replica_group import ReplicaGroup
from dpexec.runtime.client.task_runner import TaskRunner
from dpexec.runtime.client.told_bindings import ToldBindings
from dpexec.runtime.client.units import home_of
from dpexec.runtime.client.variables import Variables
from dpexec.runtime.client.waiting import Contact
from dpexec.runtime.cluster import worker as cluster_worker
from dpexec.runtime.cluster.recording import ClusterRecording
from dpexec.runtime.cluster.worker import BINDINGS_KEPT, BindingKey
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feeds.splitting import Feeds
from dpexec.runtime.fetch import collect
from dpexec.runtime.gang.runner import GangRunner
from dpexec.runtime.plan import Plan
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.steps import Shard
from dpexec.runtime.strategy import ExecutionStrategy

__all__ = ["ClusterRunner"]


class ClusterRunner:
    """Runs the plans of an engine on the workers of a cluster.

    Args:
        client: a connected ``distributed.Client``.
        spec: how program and plans are compiled.
        strategy: how steps are run, and what is done in case workers are lost.

    Raises:
        ClusterError: the cluster has no workers, or the client is closed.
    """

    def __init__(self, client: Any, spec: Compilation, strategy: ExecutionStrategy) -> None:
        self.client = client
        limit = float(strategy.collective_timeout)
        self._contact = Contact(client, limit)
        self.token = begin_run(self._contact, client, limit)  # held by whoever reads state, too
        mirrored = strategy.recovery == "mirror"
        try:
            self.group = ReplicaGroup(self._contact, self.token, spec, mirrored)
        except BaseException:  # which holds the contact as long as somebody looks at it
            end_run(weakref.ref(client), self.token)
            raise
        runner = GangRunner if strategy.collectives == "gang" else TaskRunner
        self._runner = runner(self._contact, self.group)
        self._told = ToldBindings(self.group)
        self._recovery = Recovery(self.group, self._told.forget)
        self.variables = Variables(self.group, self._recovery)
        self._recordings: Kept[Binding, ClusterRecording] = Kept(BINDINGS_KEPT)

    @property
    def address(self) -> list[str]:
        """The worker of each replica."""
        return self.group.homes.address

    def recording(self, binding: Binding) -> ClusterRecording:
        """What takes what workers record of a binding's steps."""
        if binding not in self._recordings:
            self._recordings[binding] = ClusterRecording(binding)
        return self._recordings[binding]

    def close(self) -> None:
        """Free the state on the workers."""
        homes = self.group.homes.workers
        self._contact.reach(forget, self.token, homes=homes, what="to free replicas")

    def steps(
        self,
        bindings: Sequence[Binding],
        batches: Sequence[Feeds],
        shards: Sequence[Sequence[Shard]],
        replicas: Replicas,
        merged: bool,
        recording: ClusterRecording | None = None,
    ) -> tuple[int, list[Any], BaseException | None]:
        """Run some steps.

        Args:
            bindings: what runs in each step.
            batches: what the devices are fed in each step.
            shards: every device's part of each step.
            replicas: the persistable variables.
            merged: how to return fetches, see :func:`collect`.
            recording: is told what the workers recorded of a single step.

        Returns:
            How many steps were completed, the fetches of the last one, and why it ended early: an
            operator's error, an interrupt, or a ``ClusterError``.
        """
        done, recovery = 0, self._recovery
        recovery.give_up()

        def rest() -> Made:
            nonlocal done
            done += recovery.made_before_failure()
            self._get_ready({binding.plan: None for binding in bindings}, replicas)
            while True:
                end = done + self._runner.together(bindings[done:])
                made = self._some_steps(
                    bindings[done:end], batches[done:end], shards[done:end], recording
                )
                done += made.done
                if made.error is not None or done == len(bindings):
                    return made

        with recovery.busy:
            try:
                made = recovery.surviving(rest)
            except BaseException as failed:
                recovery.see_what_was_made(failed)
                done += recovery.made_before_failure()
                made = Made(0, [], error=failed)
            for binding, feeds in zip(bindings[:done], batches, strict=False):
                self.variables.defer(binding.plan, feeds, replicas)
        if made.error is not None:
            return done, [], made.error
        plan = bindings[-1].plan
        return done, collect(made.fetched, plan.fetch, plan.active, merged), None

    def _some_steps(
        self,
        bindings: Sequence[Binding],
        batches: Sequence[Feeds],
        shards: Sequence[Sequence[Shard]],
        recording: ClusterRecording | None,
    ) -> Made:
        """Make steps together."""
        steps = [
            Wanted(binding, self._told.key(binding), feeds, parts)
            for binding, feeds, parts in zip(bindings, batches, shards, strict=True)
        ]
        self._connect(recording, steps[0].key)
        numbers = self._recovery.begin(len(bindings))
        sent = time.perf_counter_ns()
        made = self._runner.run(steps, numbers[0], recording is not None)
        if made.lost:
            raise WorkerLostError(str(made.error), made.missing) from made.error
        if made.done:
            self.group.complete = numbers[made.done - 1]
        if made.error is not None:
            self._recovery.give_up()
            return made
        self._recovery.end(numbers[-1])
        if recording is not None:
            homes = [home_of(bindings[-1].plan, task.id) for task in bindings[-1].plan.tasks]
            recording.take(sent, homes, self.address, [n for n in made.noted if n is not None])
        return made

    # ---- what comes before a step, and around it

    def _get_ready(self, plans: Iterable[Plan], replicas: Replicas) -> None:
        """Let replicas move to workers that have joined, and take what the user wrote."""
        recovery = self._recovery
        taken = self.variables.taken(replicas)
        if recovery.lost is not None:
            if taken:
                raise recovery.lost
            self.group.restart()
            self._told.forget()
        elif self.group.look():
            recovery.regroup({})
        if not taken:
            self.variables.take(plans, replicas)
            recovery.lost = None

    def _connect(self, recording: ClusterRecording | None, key: BindingKey) -> None:
        if recording is not None:
            marks = partial(cluster_worker.marks, self.token, key)
            recording.connect(self._contact, self.group.homes.workers, marks)
