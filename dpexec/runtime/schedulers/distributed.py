"""The plan on a ``distributed.Client``: explicit tasks, state on the workers.

Every worker builds the same graph and plan from the program, which is sent once. A step is one
dask graph: a task per segment and collective, pinned to the worker of its device, and a last task
per device that stores what the step computed. Between workers travel only gradients, broadcast
values and fetches. The user's tensors are filled from the workers when somebody reads them.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import dask
import numpy as np
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.core.memory import keep_freed_memory
from dpexec.ir.spec import Spec
from dpexec.runtime.binding import Binding, Memory
from dpexec.runtime.cluster_recording import ClusterRecording, Noted, noted_on_worker
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feed import Feeds
from dpexec.runtime.fetch import collect
from dpexec.runtime.gang.runner import GangRunner
from dpexec.runtime.plan import Plan
from dpexec.runtime.recording import Recording
from dpexec.runtime.records import Marks
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.schedulers.local import one_kernel_thread
from dpexec.runtime.steps import Env, Shard, run_steps

__all__ = ["ClusterRunner"]

_BINDINGS_KEPT = 64

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
                if len(self._bindings) > _BINDINGS_KEPT:
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


def _bind(token: str, key: BindingKey, specs: Sequence[Mapping[str, Spec]]) -> None:
    _workers[token].bind(key, specs)


def _setup(token: str, spec: Compilation) -> None:
    _workers[token] = WorkerReplicas(spec)


def _marks(token: str, key: BindingKey) -> Marks:
    return _workers[token].binding(key).recording.marks


def _release(token: str) -> None:
    _workers.pop(token, None)


def _store(token: str, device: int, values: Mapping[str, Any]) -> None:
    copies = {name: np.array(value) for name, value in values.items()}
    _workers[token].stores.setdefault(device, {}).update(copies)


def _load(token: str, device: int, name: str) -> Any:
    return np.array(_workers[token].stores[device][name])


def _digests(token: str, device: int, names: Sequence[str]) -> dict[str, bytes]:
    store = _workers[token].stores.get(device, {})
    found = ((name, store[name]) for name in names if name in store)
    return {name: hashlib.sha256(_words(value)).digest() for name, value in found}


def _words(value: Any) -> Any:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _values(token: str, device: int, names: Sequence[str]) -> dict[str, Any]:
    return {name: np.array(_workers[token].stores[device][name]) for name in names}


def _feed(
    token: str,
    key: BindingKey,
    step: int,
    device: int,
    shard: Shard,
    values: Mapping[str, Any],
    recorded: bool,
) -> None:
    replicas = _workers[token]
    if recorded:
        replicas.record(key, step)
    env = replicas.envs(replicas.binding(key).plan, step)[device]
    env.shard = shard
    stored = replicas.graph.program.global_block().vars
    for name, value in values.items():  # what arrives may be read-only, or the user's own array
        env[name] = np.array(value) if stored[name].persistable else value


def _run_task(
    token: str,
    key: BindingKey,
    step: int,
    number: int,
    exports: Sequence[Value],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> dict[Value, Any]:
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


def _finish(
    token: str,
    key: BindingKey,
    step: int,
    device: int,
    fed: Sequence[str],
    wanted: Sequence[Sequence[Value]],
    *after: Any,
) -> tuple[dict[str, Any], Noted | None]:
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


class ClusterRunner:
    """Runs the plans of an engine on the workers of a cluster.

    Args:
        client: a connected ``distributed.Client``.
        spec: how program and plans are compiled.
        limit: collectives run inside of gangs, which wait this long for a silent replica; None:
            they are dask tasks.

    Raises:
        RuntimeError: the cluster has no workers.
    """

    def __init__(self, client: Any, spec: Compilation, limit: float | None = None) -> None:
        self.client = client
        self.spec = spec
        self.token = uuid.uuid4().hex
        addresses = sorted(client.scheduler_info(n_workers=-1)["workers"])
        if not addresses:
            raise RuntimeError("the cluster of ExecutionStrategy.scheduler has no workers")
        self.address = [addresses[d % len(addresses)] for d in range(len(spec.places))]
        self._steps = itertools.count()
        self._bound: OrderedDict[Binding, BindingKey] = OrderedDict()
        self._recordings: dict[Binding, ClusterRecording] = {}
        self._numbers = itertools.count()
        self._generation = -1
        self._sources: dict[str, int] = {}  # whose values of a variable the user sees
        client.run(_setup, self.token, spec, workers=sorted(set(self.address)))
        self._gang = None if limit is None else GangRunner(client, self.token, self.address, limit)

    def recording(self, binding: Binding) -> ClusterRecording:
        """What takes what workers record of a binding's steps."""
        if binding not in self._recordings:
            self._recordings[binding] = ClusterRecording(binding)
            if len(self._recordings) > _BINDINGS_KEPT:
                del self._recordings[next(iter(self._recordings))]
        return self._recordings[binding]

    def close(self) -> None:
        """Free the state on the workers."""
        if self._gang is not None:
            self._gang.close()
        self.client.run(_release, self.token, workers=sorted(set(self.address)))

    def step(
        self,
        binding: Binding,
        feeds: Feeds,
        shards: Sequence[Shard],
        replicas: Replicas,
        merged: bool,
        recording: ClusterRecording | None = None,
    ) -> list[Any]:
        """Run one step and return the fetches.

        Args:
            binding: what runs.
            feeds: what the devices are fed.
            shards: every device's part of the run.
            replicas: the persistable variables.
            merged: how to return fetches, see :func:`collect`.
            recording: is told what the workers recorded.
        """
        plan = binding.plan
        if self._generation != replicas.generation:
            self._push(plan, replicas)
            self._generation = replicas.generation
        key = self._key(binding, feeds)
        number = next(self._steps)
        if recording is not None:
            recording.connect(
                self.client, sorted(set(self.address)), partial(_marks, self.token, key)
            )
        recorded = recording is not None
        graph, ends, where = self._graph(plan, key, number, feeds, shards, recorded)
        with dask.annotate(workers=lambda k: [where[k]], allow_other_workers=False, retries=0):
            futures = self.client.get(graph, ends, sync=False)
        sent = time.perf_counter_ns()
        returned = self.client.gather(futures)
        if recording is not None:
            homes = [_home(plan, task.id) for task in plan.tasks]
            recording.take(sent, homes, self.address, [noted for _, noted in returned])
        self._defer(plan, feeds, replicas)
        return collect([fetched for fetched, _ in returned], plan.fetch, plan.active, merged)

    def steps(
        self,
        bindings: Sequence[Binding],
        batches: Sequence[Feeds],
        shards: Sequence[Sequence[Shard]],
        replicas: Replicas,
        merged: bool,
        recording: ClusterRecording | None = None,
    ) -> tuple[int, list[Any], BaseException | None]:
        """Run some steps in a gang.

        Args:
            bindings: what runs in each step.
            batches: what the devices are fed in each step.
            shards: every device's part of each step.
            replicas: the persistable variables.
            merged: how to return fetches, see :func:`collect`.
            recording: is told what the workers recorded of a single step.

        Returns:
            How many steps were completed, the fetches of the last one, and why it ended early.
        """
        assert self._gang is not None
        if self._generation != replicas.generation:
            for plan in {binding.plan: None for binding in bindings}:
                self._push(plan, replicas)
            self._generation = replicas.generation
        keys = {b: self._key(b, feeds) for b, feeds in zip(bindings, batches, strict=True)}
        if recording is not None:
            marks = partial(_marks, self.token, keys[bindings[0]])
            recording.connect(self.client, sorted(set(self.address)), marks)
        sent = time.perf_counter_ns()
        made = self._gang.run(keys, bindings, batches, shards, recording is not None)
        plan = bindings[-1].plan
        for binding, feeds in zip(bindings[: made.done], batches, strict=False):
            self._defer(binding.plan, feeds, replicas)
        if made.error is not None:
            return made.done, [], made.error
        if recording is not None:
            homes = [_home(plan, task.id) for task in plan.tasks]
            recording.take(sent, homes, self.address, [n for n in made.noted if n is not None])
        return made.done, collect(made.fetched, plan.fetch, plan.active, merged), None

    def _key(self, binding: Binding, feeds: Feeds) -> BindingKey:
        """The name that the workers know a binding by; they are told of a new one."""
        if binding not in self._bound:
            plan = binding.plan
            fed = frozenset(name for values in feeds.values for name in values)
            key = (plan.fetch, fed, feeds.idle, plan.checked), next(self._numbers)
            workers = sorted(set(self.address))
            self.client.run(_bind, self.token, key, binding.specs, workers=workers)
            self._bound[binding] = key
            if len(self._bound) > _BINDINGS_KEPT:
                self._bound.popitem(last=False)
        return self._bound[binding]

    def _push(self, plan: Plan, replicas: Replicas) -> None:
        """Send the persistable variables to the workers of the devices that use them."""
        futures = []
        for device, names in enumerate(plan.reads):
            tensors = {name: replicas.tensor(device, name) for name in names}
            self._sources.update((name, device) for name in names if name not in self._sources)
            values = {name: t.numpy() for name, t in tensors.items() if t is not None}
            futures.append(
                self.client.submit(
                    _store,
                    self.token,
                    device,
                    values,
                    workers=[self.address[device]],
                    pure=False,
                )
            )
        self.client.gather(futures)
        replicas.taken()

    def values(self, names: Iterable[str], replicas: Replicas) -> list[dict[str, Any]]:
        """What every device has of variables that nobody wrote since; equal values travel once.

        The user's tensors are filled, as if they had been read.
        """
        known = [name for name in names if name in self._sources and replicas.current(name)]
        digests = self._ask(_digests, [known] * len(self.address))
        sources: dict[tuple[str, bytes], int] = {}
        for device, found in enumerate(digests):
            for value in found.items():
                sources.setdefault(value, device)
        wanted: list[list[str]] = [[] for _ in self.address]
        for (name, _), device in sources.items():
            wanted[device].append(name)
        loaded = self._ask(_values, wanted)
        values = [
            {name: loaded[sources[name, digest]][name] for name, digest in found.items()}
            for found in digests
        ]
        for name in known:
            tensor = replicas.tensor(0, name)
            if tensor is not None and tensor._source is not None:
                tensor.array = np.array(values[self._sources[name]][name])
        return values

    def _ask(self, function: Any, names: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        futures = [
            self.client.submit(
                function, self.token, device, wanted, workers=[self.address[device]], pure=False
            )
            for device, wanted in enumerate(names)
        ]
        answers: list[dict[str, Any]] = self.client.gather(futures)
        return answers

    def _graph(
        self,
        plan: Plan,
        key: BindingKey,
        step: int,
        feeds: Feeds,
        shards: Sequence[Shard],
        recorded: bool,
    ) -> tuple[dict[Any, DaskTask], list[Any], dict[Any, str]]:
        graph: dict[Any, DaskTask] = {}
        where: dict[Any, str] = {}
        tag = f"{self.token[:8]}-{step}"

        def add(name: str, device: int, function: Any, *args: Any) -> tuple[str, str]:
            task_key = (name, tag)
            graph[task_key] = DaskTask(task_key, function, self.token, key, step, *args)
            where[task_key] = self.address[device]
            return task_key

        feed_keys = [
            add(
                f"feed_dev{device}",
                device,
                _feed,
                device,
                shards[device],
                feeds.values[device],
                recorded,
            )
            for device in range(len(self.spec.places))
        ]
        exports, imports = _flows(plan)
        keys: list[tuple[str, str]] = []
        for task in plan.tasks:
            home = _home(plan, task.id)
            wanted = [imports.get((index, task.id), []) for index in task.after]
            refs = [TaskRef(keys[index]) for index in task.after]
            args = (task.id, exports[task.id], wanted, *refs, TaskRef(feed_keys[home]))
            keys.append(add(f"{task.key[0]}-{task.id}", home, _run_task, *args))
        ends = []
        for device in range(len(self.spec.places)):
            made = [(t.id, _made_for(plan, t.id, device)) for t in plan.tasks]
            made = [(index, names) for index, names in made if names]
            wanted = [names if plan.tasks[i].is_collective else [] for i, names in made]
            refs = [TaskRef(keys[index]) for index, _ in made]
            args = (device, sorted(feeds.persistable), wanted, *refs, TaskRef(feed_keys[device]))
            ends.append(add(f"finish_dev{device}", device, _finish, *args))
        return graph, ends, where

    def _defer(self, plan: Plan, feeds: Feeds, replicas: Replicas) -> None:
        """Let the user's tensors come from the workers when they are read."""
        source: dict[str, int] = {}
        written = [*plan.overwritten, *plan.commits, *((0, name) for name in feeds.persistable)]
        for device, name in written:
            source[name] = min(device, source.get(name, device))
        self._sources.update(source)
        for name, device in source.items():
            tensor = replicas.scope.var(name).get_tensor()
            tensor.defer(lambda device=device, name=name: self._pull(device, name))  # type: ignore[misc]

    def _pull(self, device: int, name: str) -> Any:
        future = self.client.submit(
            _load, self.token, device, name, workers=[self.address[device]], pure=False
        )
        return np.array(future.result())


def _home(plan: Plan, number: int) -> int:
    """The device on whose worker a task runs: an all-reduce on that of the first source."""
    task = plan.tasks[number]
    return task.nodes[0].inputs[0].device if task.device is None else task.device


def _made_for(plan: Plan, number: int, device: int) -> list[Value]:
    """The values of a device that a task makes."""
    outputs = (var for node in plan.tasks[number].nodes for var in node.outputs)
    names = dict.fromkeys(var.name for var in outputs if var.device == device and var.kind == "var")
    return [(device, name) for name in names if name]


def _flows(plan: Plan) -> tuple[list[list[Value]], dict[tuple[int, int], list[Value]]]:
    """What travels between collectives and segments.

    A task imports just what its nodes read from the task that made that version: an older version
    must never replace a newer one, which on workers of one process would happen in all envs.

    Returns:
        The values that each task hands out, and by (maker, reader) those that the reader takes.
    """
    made_by = {var: task.id for task in plan.tasks for node in task.nodes for var in node.outputs}
    exports: list[dict[Value, None]] = [{} for _ in plan.tasks]
    imports: dict[tuple[int, int], list[Value]] = {}
    for task in plan.tasks:
        for var in dict.fromkeys(var for node in task.nodes for var in node.inputs):
            maker = made_by.get(var)
            if var.kind != "var" or var in plan.missing or maker in (None, task.id):
                continue
            assert maker is not None
            if task.is_collective or plan.tasks[maker].is_collective:
                exports[maker][(var.device, var.name)] = None
                imports.setdefault((maker, task.id), []).append((var.device, var.name))
        if task.is_collective:
            values = ((v.device, v.name) for n in task.nodes for v in n.outputs if v.kind == "var")
            exports[task.id].update(dict.fromkeys(values))
    return [list(names) for names in exports], imports
