"""The plan on a ``distributed.Client``: state lives on the workers, steps are sent to them.

Every worker builds the same graph and plan from the program, which is sent once. Steps are
one dask graph (:mod:`task_runner`), or what a gang does. Between workers travel only
gradients, broadcast values and fetches, and what is mirrored. The user's tensors are filled from
the workers when somebody reads them. When workers are lost, their replicas move, and what was not
complete is done again (:mod:`replica_group`).
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dpexec.core.kept import Kept
from dpexec.core.places import CPUPlace
from dpexec.errors import ClusterError, StateLostError, WorkerLostError
from dpexec.runtime.binding import Binding
from dpexec.runtime.cluster import state as cluster_state
from dpexec.runtime.cluster import worker as cluster_worker
from dpexec.runtime.cluster.recording import ClusterRecording
from dpexec.runtime.cluster.versions import StaleTaskError
from dpexec.runtime.cluster.worker import BINDINGS_KEPT, BindingKey
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feeds.splitting import Feeds
from dpexec.runtime.fetch import collect
from dpexec.runtime.gang.runner import GangRunner
from dpexec.runtime.plan import Plan
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.schedulers.lifetime import begin_run, end_run, forget
from dpexec.runtime.schedulers.made import Made, Wanted
from dpexec.runtime.schedulers.replica_group import ReplicaGroup
from dpexec.runtime.schedulers.task_runner import TaskRunner
from dpexec.runtime.schedulers.units import home_of
from dpexec.runtime.schedulers.waiting import Contact
from dpexec.runtime.steps import Shard
from dpexec.runtime.strategy import ExecutionStrategy

__all__ = ["ClusterRunner"]

_ATTEMPTS = 4
"""How often the same step may lose workers: it may be what kills them."""

_T = TypeVar("_T")


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
        self.token = begin_run(self, client, limit)
        mirrored = strategy.recovery == "mirror"
        try:
            self.group = ReplicaGroup(self._contact, self.token, spec, mirrored)
        except BaseException:  # which holds the runner as long as somebody looks at it
            end_run(weakref.ref(client), self.token)
            raise
        runner = GangRunner if strategy.collectives == "gang" else TaskRunner
        self._runner = runner(self._contact, self.group)
        self._next = 0
        self._bound: OrderedDict[Binding, BindingKey] = OrderedDict()
        self._told: set[BindingKey] = set()
        self._bindings = 0
        self._recordings: Kept[Binding, ClusterRecording] = Kept(BINDINGS_KEPT)
        self._generation = -1
        self._sources: dict[str, int] = {}  # whose values of a variable the user sees
        self._attempt = range(0)  # numbers of the steps that were begun last
        self._disturbed = False  # whether they may not have come to their end
        self._lost: StateLostError | None = None
        self._busy = threading.RLock()

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
        done, self._attempt = 0, range(0)

        def rest() -> Made:
            nonlocal done
            done += self._made_before_failure()
            self._get_ready({binding.plan: None for binding in bindings}, replicas)
            while True:
                end = done + self._runner.together(bindings[done:])
                made = self._some_steps(
                    bindings[done:end], batches[done:end], shards[done:end], recording
                )
                done += made.done
                if made.error is not None or done == len(bindings):
                    return made

        with self._busy:
            try:
                made = self._surviving(rest)
            except BaseException as failed:
                self._see_what_was_made(failed)
                done += self._made_before_failure()
                made = Made(0, [], error=failed)
            for binding, feeds in zip(bindings[:done], batches, strict=False):
                self._defer(binding.plan, feeds, replicas)
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
            Wanted(binding, self._key(binding, feeds), feeds, parts)
            for binding, feeds, parts in zip(bindings, batches, shards, strict=True)
        ]
        self._connect(recording, steps[0].key)
        numbers = self._begin(len(bindings))
        sent = time.perf_counter_ns()
        made = self._runner.run(steps, numbers[0], recording is not None)
        if made.lost:
            raise WorkerLostError(str(made.error), made.missing) from made.error
        if made.done:
            self.group.complete = numbers[made.done - 1]
        if made.error is not None:
            self._attempt = range(0)
            return made
        self._end(numbers[-1])
        if recording is not None:
            homes = [home_of(bindings[-1].plan, task.id) for task in bindings[-1].plan.tasks]
            recording.take(sent, homes, self.address, [n for n in made.noted if n is not None])
        return made

    def _see_what_was_made(self, failed: BaseException) -> None:
        """After an operator's error in a graph of several steps, find the step that all have made.

        If it cannot be found, the run counts as far as was known before, and so the next one will
        go on from there.
        """
        if self._attempt and not isinstance(failed, ClusterError):
            with contextlib.suppress(ClusterError):
                self._surviving(lambda: None)  # begins another epoch, as the steps have failed

    # ---- what comes before a step, and around it

    def _get_ready(self, plans: Iterable[Plan], replicas: Replicas) -> None:
        """Let replicas move to workers that have joined, and take what the user wrote."""
        if self._lost is not None:
            if self._generation == replicas.generation:
                raise self._lost
            self.group.restart()
            self._told.clear()
        elif self.group.look():
            self._regroup({})
        if self._generation != replicas.generation:
            for plan in plans:
                self._push(plan, replicas)
            replicas.taken()
            self._generation, self.group.filled, self._lost = replicas.generation, True, None

    def _begin(self, count: int) -> range:
        """Numbers for steps that begin now."""
        numbers = range(self._next, self._next + count)
        self._next, self._attempt, self._disturbed = numbers.stop, numbers[:-1], True
        return numbers

    def _end(self, number: int) -> None:
        self.group.complete, self._attempt, self._disturbed = number, range(0), False

    def _made_before_failure(self) -> int:
        """How many of the steps that were begun are complete, though they failed."""
        attempt, self._attempt = self._attempt, range(0)
        complete = self.group.complete
        return attempt.index(complete) + 1 if complete in attempt else 0

    def _connect(self, recording: ClusterRecording | None, key: BindingKey) -> None:
        if recording is not None:
            marks = partial(cluster_worker.marks, self.token, key)
            recording.connect(self._contact, self.group.homes.workers, marks)

    def _surviving(self, action: Callable[[], _T]) -> _T:
        """Do something that needs all replicas, again when workers were lost and replaced."""
        lost, left, complete = None, _ATTEMPTS, self.group.complete
        while left:
            try:
                if lost is not None or self._disturbed:
                    self._regroup({} if lost is None else lost.lost)
                    lost = None
                return action()
            except WorkerLostError as error:
                lost = error
            except StaleTaskError as error:  # dask repeats tasks when it has lost their results
                lost = WorkerLostError(str(error), {})
            left = left - 1 if self.group.complete == complete else _ATTEMPTS
            complete = self.group.complete
        raise WorkerLostError(
            f"workers were lost {_ATTEMPTS} times at the same step, which may be what kills them "
            f"(for want of memory?); the last time: {lost}",
            lost.lost if lost else {},
        )

    def _regroup(self, lost: Mapping[str, str]) -> None:
        self._disturbed = True  # also if it does not come to its end
        try:
            self.group.regroup(lost, self._attempt)
        except StateLostError as error:
            self._lost, self._disturbed = error, False  # there is nothing to put right any more
            raise
        finally:
            self._told.clear()
        self._disturbed = False

    def _key(self, binding: Binding, feeds: Feeds) -> BindingKey:
        """The name that the workers know a binding by; they are told of a new one."""
        if binding not in self._bound:
            plan = binding.plan
            plan_key = plan.fetch, feeds.names, feeds.idle, plan.checked
            self._bound[binding] = plan_key, self._bindings
            self._bindings += 1
            if len(self._bound) > BINDINGS_KEPT:
                self._told.discard(self._bound.popitem(last=False)[1])
        key = self._bound[binding]
        if key not in self._told:
            calls = [(worker, (key, binding.specs)) for worker in self.group.homes.workers]
            self.group.call(cluster_worker.bind, calls, "to compile a plan")
            self._told.add(key)
        return key

    # ---- state

    def _push(self, plan: Plan, replicas: Replicas) -> None:
        """Send persistable variables to the workers of devices that use them, and to mirrors.

        All that a worker takes is one task: what its replicas have in common is one array there.
        """
        values: list[dict[str, Any]] = []
        for device, names in enumerate(plan.reads):
            tensors = {name: replicas.tensor(device, name) for name in names}
            self._sources.update((name, device) for name in names if name not in self._sources)
            values.append({name: t.numpy() for name, t in tensors.items() if t is not None})
        calls: list[tuple[str, tuple[Any, ...]]] = [
            (worker, (False, {device: values[device] for device in devices}))
            for worker, devices in self.group.homes.workers.items()
        ]
        for device, worker in self.group.mirrors:
            own = self.group.own[device]
            kept = {name: value for name, value in values[device].items() if name in own}
            calls.append((worker, (True, {device: kept})))
        self.group.call(cluster_state.store, calls, "to take values")

    def values(self, names: Iterable[str], replicas: Replicas) -> list[dict[str, Any]]:
        """What every device has of variables that nobody wrote since; equal values travel once.

        The user's tensors are filled, as if they had been read.
        """
        known = [name for name in names if name in self._sources and replicas.current(name)]
        values = self._read(lambda: self._values(known))
        for name in known:
            tensor = replicas.tensor(0, name)
            if tensor is not None and tensor._source is not None:
                tensor.array = np.array(values[self._sources[name]][name])
        return values

    def _values(self, names: Sequence[str]) -> list[dict[str, Any]]:
        digests = self._ask(cluster_state.digests, [names] * len(self.address))
        sources: dict[tuple[str, bytes], int] = {}
        for device, found in enumerate(digests):
            for value in found.items():
                sources.setdefault(value, device)
        wanted: list[list[str]] = [[] for _ in self.address]
        for (name, _), device in sources.items():
            wanted[device].append(name)
        loaded = self._ask(cluster_state.values, wanted)
        return [
            {name: loaded[sources[name, digest]][name] for name, digest in found.items()}
            for found in digests
        ]

    def _ask(self, function: Any, names: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        calls = [(self.address[device], (device, wanted)) for device, wanted in enumerate(names)]
        return self.group.call(function, calls, "to read variables")

    def _defer(self, plan: Plan, feeds: Feeds, replicas: Replicas) -> None:
        """Let the user's tensors come from the workers when they are read."""
        source: dict[str, int] = {}
        written = [*plan.overwritten, *plan.commits, *((0, name) for name in feeds.persistable)]
        for device, name in written:
            source[name] = min(device, source.get(name, device))
        self._sources.update(source)
        for name, device in source.items():
            tensor = replicas.scope.var(name).get_tensor()
            tensor.place = CPUPlace()
            tensor.defer(lambda device=device, name=name: self._pull(device, name))  # type: ignore[misc]

    def _pull(self, device: int, name: str) -> Any:
        def load() -> Any:
            calls = [(self.address[device], (device, [name]))]
            return self.group.call(cluster_state.values, calls, f"to read {name}")[0][name]

        return np.array(self._read(load))

    def _read(self, action: Callable[[], _T]) -> _T:
        """Read state; other threads may do that in the middle of a run, and may have to wait."""
        if self._lost is not None:
            raise self._lost
        try:
            return action()
        except (WorkerLostError, StaleTaskError):
            with self._busy:
                return self._surviving(action)
