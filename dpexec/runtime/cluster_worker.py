"""What a worker of a cluster does: it holds replicas, and runs the tasks that come for them.

The functions are called on workers, with the token of the runner whose replicas they mean
(:class:`dpexec.runtime.schedulers.distributed.ClusterRunner`).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.core.memory import keep_freed_memory
from dpexec.ir.spec import Spec
from dpexec.runtime.binding import Binding, Memory
from dpexec.runtime.cluster_recording import Noted, noted_on_worker
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.plan import Plan
from dpexec.runtime.recording import Recording
from dpexec.runtime.records import Marks
from dpexec.runtime.schedulers.local import one_kernel_thread
from dpexec.runtime.steps import Env, Shard, run_steps

BINDINGS_KEPT = 64
"""How many bindings of a runner its workers and the client remember."""

Value = tuple[int, str]
"""A variable of a device."""

PlanKey = tuple[tuple[str, ...], frozenset[str], tuple[int, ...], bool]
"""What is fetched, what is fed, the idle devices, and FLAGS_check_nan_inf."""

BindingKey = tuple[PlanKey, int]
"""A plan, and the number of the shapes that it is bound to."""


class WorkerReplicas:
    """State of the replicas that live on one worker.

    Args:
        spec: how program and plans are compiled.
    """

    def __init__(self, spec: Compilation) -> None:
        import dpexec.ops  # noqa: F401 - the kernels must be registered in this process

        keep_freed_memory()
        self.spec = spec
        self.graph, _ = spec.graph()
        self.stores: dict[int, dict[str, Any]] = {}
        self._plans: dict[PlanKey, Plan] = {}
        self._bindings: dict[int, Binding] = {}
        self._memory = Memory()
        self._envs: list[Env] = []
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

    def envs(self, plan: Plan, step: int) -> list[Env]:
        """The envs of a step, made at its first task on this worker.

        Raises:
            RuntimeError: the step is over; a task of it must not run any more.
        """
        with self._lock:
            if step < self._step:
                raise RuntimeError(f"a task of step {step} came during step {self._step}")
            if step > self._step:
                self._step, self._done = step, set()
                stores = [self.stores.get(d, {}) for d in range(len(self.spec.places))]
                self._envs = [
                    plan.make_env(None, {n: store[n] for n in wanted if n in store})
                    for store, wanted in zip(stores, plan.reads, strict=True)
                ]
            return self._envs

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
            RuntimeError: the task ran already.
        """
        with self._lock:
            if number in self._done:
                raise RuntimeError(f"task {number} of step {self._step} was started twice")
            self._done.add(number)


_workers: dict[str, WorkerReplicas] = {}


def replicas_on_worker(token: str) -> WorkerReplicas:
    """The replicas of a runner that live on this worker."""
    return _workers[token]


def bind(token: str, key: BindingKey, specs: Sequence[Mapping[str, Spec]]) -> None:
    """Bind a plan of a runner to the shapes of a batch."""
    _workers[token].bind(key, specs)


def setup(token: str, spec: Compilation) -> None:
    """Make room for the replicas of a runner."""
    _workers[token] = WorkerReplicas(spec)


def marks(token: str, key: BindingKey) -> Marks:
    """What the notes of a recorded step of a binding mean."""
    return _workers[token].binding(key).recording.marks


def release(token: str) -> None:
    """Forget the replicas of a runner."""
    _workers.pop(token, None)


def store(token: str, device: int, values: Mapping[str, Any]) -> None:
    """Set persistable variables of a device."""
    copies = {name: np.array(value) for name, value in values.items()}
    _workers[token].stores.setdefault(device, {}).update(copies)


def load(token: str, device: int, name: str) -> Any:
    """A persistable variable of a device."""
    return np.array(_workers[token].stores[device][name])


def digests(token: str, device: int, names: Sequence[str]) -> dict[str, bytes]:
    """What tells whether variables of a device differ from those of another."""
    store = _workers[token].stores.get(device, {})
    found = ((name, store[name]) for name in names if name in store)
    return {name: hashlib.sha256(_words(value)).digest() for name, value in found}


def _words(value: Any) -> Any:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def values(token: str, device: int, names: Sequence[str]) -> dict[str, Any]:
    """Persistable variables of a device."""
    return {name: np.array(_workers[token].stores[device][name]) for name in names}


def feed(
    token: str,
    key: BindingKey,
    step: int,
    device: int,
    shard: Shard,
    values: Mapping[str, Any],
    recorded: bool,
) -> None:
    """The first task of a step on a device: its samples and its shard."""
    replicas = _workers[token]
    if recorded:
        replicas.record(key, step)
    env = replicas.envs(replicas.binding(key).plan, step)[device]
    env.shard = shard
    stored = replicas.graph.program.global_block().vars
    for name, value in values.items():  # what arrives may be read-only, or the user's own array
        env[name] = np.array(value) if stored[name].persistable else value


def run_task(
    token: str,
    key: BindingKey,
    step: int,
    number: int,
    exports: Sequence[Value],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> dict[Value, Any]:
    """A task of the plan.

    Args:
        token: whose replicas.
        key: the binding.
        step: number of the step.
        number: of the task.
        exports: values that others need.
        wanted: what is taken of each result in ``after``.
        after: results of the tasks that it waits for.

    Returns:
        The values that others need.
    """
    replicas = _workers[token]
    binding = replicas.binding(key)
    envs = replicas.envs(binding.plan, step)
    replicas.once(number)
    for names, values in zip(wanted, after, strict=False):
        for device, name in names:
            envs[device][name] = values[device, name]
    recording = replicas.recording(step)
    with one_kernel_thread():
        if recording is None:
            run_steps(binding.steps[number], envs)
        else:
            recording.run(number, envs)
    return {(device, name): envs[device][name] for device, name in exports}


def finish(
    token: str,
    key: BindingKey,
    step: int,
    device: int,
    fed: Sequence[str],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> tuple[dict[str, Any], Noted | None]:
    """The last task of a step on a device: stores what the step computed.

    Returns:
        What is fetched, and what was noted if the step is recorded.
    """
    replicas = _workers[token]
    plan = replicas.binding(key).plan
    env = replicas.envs(plan, step)[device]
    for taken, values in zip(wanted, after, strict=False):
        env.update({name: values[device, name] for _, name in taken})
    store = replicas.stores.setdefault(device, {})
    names = {name for where, name in plan.commits if where == device}
    for name in sorted(names | set(fed)):
        if name in env:
            store[name] = np.array(env[name])
    fetched = {name: np.array(env[name]) for name in plan.fetch if name in env}
    recording = replicas.recording(step)
    return fetched, None if recording is None else noted_on_worker(recording)
