"""What a worker of a cluster does: it holds replicas, and runs the tasks that come for them.

The functions are called on workers, with the epoch of the runner whose replicas they mean
(:class:`dpexec.runtime.schedulers.distributed.ClusterRunner`). When the homes of replicas change,
another epoch begins, and what still comes of the one before is refused.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed import get_worker

from dpexec.core.memory import keep_freed_memory
from dpexec.ir.spec import Spec
from dpexec.runtime.binding import Binding, Memory
from dpexec.runtime.cluster_recording import Noted, noted_on_worker
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.held_feed import put_together
from dpexec.runtime.plan import Plan
from dpexec.runtime.recording import Recording
from dpexec.runtime.records import Marks
from dpexec.runtime.schedulers.local import one_kernel_thread
from dpexec.runtime.steps import Env, Shard, run_steps
from dpexec.runtime.versions import StaleTaskError, StepArrays, Versions

BINDINGS_KEPT = 64
"""How many bindings of a runner its workers and the client remember."""

Value = tuple[int, str]
"""A variable of a device."""


class Exports(dict[Value, Any]):
    """What a task hands out.

    As a class of its own it is pickled as a whole, so that a sum that goes to several replicas
    travels once; of a plain dict dask sends every value by itself.
    """


@sizeof.register(Exports)
def _size_of(exports: Exports) -> int:
    """The bytes of what a task hands out, as dask counts them, and traces."""
    return sum(map(sizeof, {id(value): value for value in exports.values()}.values()))


PlanKey = tuple[tuple[str, ...], frozenset[str], tuple[int, ...], bool]
"""What is fetched, what is fed, the idle devices, and FLAGS_check_nan_inf."""

BindingKey = tuple[PlanKey, int]
"""A plan, and the number of the shapes that it is bound to."""


class Epoch(NamedTuple):
    """A time in which the replicas of a runner have the same homes.

    Args:
        token: of the runner.
        number: counts its epochs.
    """

    token: str
    number: int


class StepOf(NamedTuple):
    """A step, as its tasks name it.

    Args:
        epoch: when it was sent.
        number: of the step.
        base: number of the step before, on whose values it works.
    """

    epoch: Epoch
    number: int
    base: int


class WorkerReplicas:
    """State of the replicas that live on one worker.

    Args:
        epoch: the time that it is made for.
        spec: how program and plans are compiled.

    Attributes:
        stores: the persistable variables of the replicas.
        mirrors: of replicas on other workers, what nobody else has.
        running: how many tasks run now.
    """

    def __init__(self, epoch: Epoch, spec: Compilation) -> None:
        import dpexec.ops  # noqa: F401 - the kernels must be registered in this process

        keep_freed_memory()
        self.epoch = epoch
        self.spec = spec
        self.graph, _ = spec.graph()
        self.stores: dict[int, Versions] = {}
        self.mirrors: dict[int, Versions] = {}
        self.running = 0
        self._plans: dict[PlanKey, Plan] = {}
        self._bindings: dict[int, Binding] = {}
        self._memory = Memory()
        self._envs: list[Env] = []
        self._arrays = StepArrays()
        self._step = -1
        self._recorded = -1
        self._recording: Recording | None = None
        self._done: set[int] = set()
        self._lock = threading.Lock()

    def bind(self, key: BindingKey, specs: Sequence[Mapping[str, Spec]]) -> None:
        """Bind a plan to the shapes of a batch."""
        plan_key, number = key
        with self._lock:
            if plan_key not in self._plans:
                self._plans[plan_key] = self.spec.plan(self.graph, *plan_key)
            if number not in self._bindings:  # workers of one process share this
                plan, compiled = self._plans[plan_key], self.spec
                binding = Binding(plan, specs, compiled.native, self._memory, compiled.halves)
                assert binding.steps is not None
                self._bindings[number] = binding
                if len(self._bindings) > BINDINGS_KEPT:
                    del self._bindings[next(iter(self._bindings))]

    def binding(self, key: BindingKey) -> Binding:
        """What was bound for a key."""
        return self._bindings[key[1]]

    @contextlib.contextmanager
    def working(self, epoch: Epoch) -> Iterator[None]:
        """Let a task work on the replicas.

        Raises:
            StaleTaskError: it is of another epoch.
        """
        with self._lock:
            if epoch != self.epoch:
                raise StaleTaskError(
                    f"a task of epoch {epoch.number} came in epoch {self.epoch.number}"
                )
            self.running += 1
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1

    def envs(self, plan: Plan, step: StepOf) -> list[Env]:
        """The envs of a step, made at its first task on this worker.

        Raises:
            StaleTaskError: the step is over; a task of it must not run any more.
        """
        with self._lock:
            if step.number < self._step:
                raise StaleTaskError(f"a task of step {step.number} came in step {self._step}")
            if step.number > self._step:
                self._step, self._done, self._arrays = step.number, set(), StepArrays()
                self._envs = [
                    self._env(plan, device, step.base) for device in range(len(plan.reads))
                ]
            return self._envs

    def _env(self, plan: Plan, device: int, base: int) -> Env:
        store = self.stores.get(device)
        if store is None:  # at home elsewhere
            return Env()
        store.stand_at(base)
        overwritten = [name for where, name in plan.overwritten if where == device]
        scratch = store.scratch(overwritten, self._arrays)
        values = {n: store.values[n] for n in plan.reads[device] if n in store.values}
        return plan.make_env(None, {**values, **scratch})

    def commit(self, plan: Plan, step: StepOf, device: int, env: Env, fed: Sequence[str]) -> None:
        """Store what a step computed."""
        made = made_by(plan, device, env, fed)
        self.stores[device].commit(step.number, made, self._arrays)

    def record(self, key: BindingKey, step: int) -> None:
        """Note when the tasks of a step run."""
        with self._lock:
            if step > self._recorded:
                self._recorded, self._recording = step, self.binding(key).recording
                self._recording.begin()
                self._recording.begin_tasks()

    def recording(self, step: int) -> Recording | None:
        """What notes when the tasks of a step run; None if nobody wants to know."""
        return self._recording if step == self._recorded else None

    def once(self, number: int) -> None:
        """Refuse to run a task of the current step twice: updates would be applied twice.

        Raises:
            StaleTaskError: the task ran already.
        """
        with self._lock:
            if number in self._done:
                raise StaleTaskError(f"task {number} of step {self._step} was started twice")
            self._done.add(number)


def made_by(plan: Plan, device: int, env: Env, fed: Iterable[str]) -> dict[str, Any]:
    """The values of persistable variables that a step made on a device.

    Args:
        plan: what ran.
        device: the device.
        env: its values.
        fed: names of what was fed that also sets a variable.
    """
    written = {name for where, name in (*plan.commits, *plan.overwritten) if where == device}
    return {name: env[name] for name in sorted(written.union(fed)) if name in env}


_workers: dict[tuple[str, str], WorkerReplicas] = {}


def replicas_at(token: str, address: str) -> WorkerReplicas:
    """The replicas of a runner on the worker of an address, which lives in this process.

    Raises:
        StaleTaskError: there are none.
    """
    if (token, address) not in _workers:
        raise StaleTaskError(f"worker {address} has no replicas of run {token}")
    return _workers[token, address]


@contextlib.contextmanager
def at_work(epoch: Epoch) -> Iterator[WorkerReplicas]:
    """The replicas of a runner on this worker, for a task.

    Raises:
        StaleTaskError: the task is of another epoch.
    """
    replicas = replicas_at(epoch.token, get_worker().address)
    with replicas.working(epoch):
        yield replicas


def keep(replicas: WorkerReplicas, address: str) -> None:
    """Make room for the replicas of a runner on a worker."""
    _workers[replicas.epoch.token, address] = replicas


def release(token: str, dask_worker: Any) -> None:
    """Forget the replicas of a runner."""
    _workers.pop((token, dask_worker.address), None)


def marks(token: str, key: BindingKey, dask_worker: Any) -> Marks:
    """What the notes of a recorded step of a binding mean."""
    return replicas_at(token, dask_worker.address).binding(key).recording.marks


# ---- tasks


def bind(epoch: Epoch, step: int, key: BindingKey, specs: Sequence[Mapping[str, Spec]]) -> None:
    """Bind a plan of a runner to the shapes of a batch; it serves all steps."""
    with at_work(epoch) as replicas:
        replicas.bind(key, specs)


def feed(
    step: StepOf,
    key: BindingKey,
    device: int,
    shard: Shard,
    values: Mapping[str, Any],
    recorded: bool,
    counts: Mapping[str, int],
    *blocks: Any,
) -> None:
    """The first task of a step on a device: its samples, see :class:`Fed`, and its shard."""
    with at_work(step.epoch) as replicas:
        if recorded:
            replicas.record(key, step.number)
        env = replicas.envs(replicas.binding(key).plan, step)[device]
        env.shard = shard
        stored = replicas.graph.program.global_block().vars
        fed = put_together(values, counts, iter(blocks))
        for name, value in fed.items():  # what comes may be read-only, or the user's own array
            env[name] = np.array(value) if stored[name].persistable else value


def run_task(
    step: StepOf,
    key: BindingKey,
    number: int,
    exports: Sequence[Value],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> Exports:
    """A task of the plan.

    Args:
        step: the step.
        key: the binding.
        number: of the task.
        exports: values that others need.
        wanted: what is taken of each result in ``after``.
        after: results of the tasks that it waits for.

    Returns:
        The values that others need.
    """
    with at_work(step.epoch) as replicas:
        binding = replicas.binding(key)
        envs = replicas.envs(binding.plan, step)
        replicas.once(number)
        for names, values in zip(wanted, after, strict=False):
            for device, name in names:
                envs[device][name] = values[device, name]
        recording = replicas.recording(step.number)
        with one_kernel_thread():
            if recording is None:
                run_steps(binding.steps[number], envs)
            else:
                recording.run(number, envs)
        return Exports({(device, name): envs[device][name] for device, name in exports})


def finish(
    step: StepOf,
    key: BindingKey,
    device: int,
    fed: Sequence[str],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> tuple[dict[str, Any], Noted | None]:
    """The last task of a step on a device: stores what the step computed.

    Returns:
        What is fetched, and what was noted if the step is recorded.
    """
    commit(step, key, device, (), fed, wanted, *after)
    return fetch(step, key, device)


def commit(
    step: StepOf,
    key: BindingKey,
    device: int,
    own: Sequence[str],
    fed: Sequence[str],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> dict[str, Any]:
    """The first half of the last task, if some of what the step computed is mirrored.

    Returns:
        The variables in ``own``.
    """
    with at_work(step.epoch) as replicas:
        plan = replicas.binding(key).plan
        env = replicas.envs(plan, step)[device]
        for taken, values in zip(wanted, after, strict=False):
            env.update({name: values[device, name] for _, name in taken})
        replicas.commit(plan, step, device, env, fed)
        made = replicas.stores[device].values
        return {name: made[name] for name in own if name in made}


def fetch(
    step: StepOf, key: BindingKey, device: int, *after: Any
) -> tuple[dict[str, Any], Noted | None]:
    """The second half of the last task, see :func:`finish`."""
    with at_work(step.epoch) as replicas:
        plan = replicas.binding(key).plan
        env = replicas.envs(plan, step)[device]
        fetched = {name: np.array(env[name]) for name in plan.fetch if name in env}
        recording = replicas.recording(step.number)
        return fetched, None if recording is None else noted_on_worker(recording)
