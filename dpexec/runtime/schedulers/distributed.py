"""The plan on a ``distributed.Client``: explicit tasks, state on the workers.

Every worker builds the same graph and plan from the program, which is sent once. A step is one
dask graph: a task per segment and collective, pinned to the worker of its device, and a last task
per device that stores what the step computed. Between workers travel only gradients, broadcast
values and fetches. The user's tensors are filled from the workers when somebody reads them.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import dask
import numpy as np
from dask._task_spec import Task as DaskTask
from dask._task_spec import TaskRef

from dpexec.runtime import cluster_worker
from dpexec.runtime.binding import Binding
from dpexec.runtime.cluster_recording import ClusterRecording
from dpexec.runtime.cluster_worker import BINDINGS_KEPT, BindingKey, Value
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feed import Feeds
from dpexec.runtime.fetch import collect
from dpexec.runtime.gang.runner import GangRunner
from dpexec.runtime.placement import place_replicas, workers_of
from dpexec.runtime.plan import Plan
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.steps import Shard

__all__ = ["ClusterRunner"]


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
        self.address = place_replicas(len(spec.places), workers_of(client))
        self._steps = itertools.count()
        self._bound: OrderedDict[Binding, BindingKey] = OrderedDict()
        self._recordings: dict[Binding, ClusterRecording] = {}
        self._numbers = itertools.count()
        self._generation = -1
        self._sources: dict[str, int] = {}  # whose values of a variable the user sees
        client.run(cluster_worker.setup, self.token, spec, workers=sorted(set(self.address)))
        self._gang = None if limit is None else GangRunner(client, self.token, self.address, limit)

    def recording(self, binding: Binding) -> ClusterRecording:
        """What takes what workers record of a binding's steps."""
        if binding not in self._recordings:
            self._recordings[binding] = ClusterRecording(binding)
            if len(self._recordings) > BINDINGS_KEPT:
                del self._recordings[next(iter(self._recordings))]
        return self._recordings[binding]

    def close(self) -> None:
        """Free the state on the workers."""
        if self._gang is not None:
            self._gang.close()
        self.client.run(cluster_worker.release, self.token, workers=sorted(set(self.address)))

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
                self.client,
                sorted(set(self.address)),
                partial(cluster_worker.marks, self.token, key),
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
            marks = partial(cluster_worker.marks, self.token, keys[bindings[0]])
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
            self.client.run(cluster_worker.bind, self.token, key, binding.specs, workers=workers)
            self._bound[binding] = key
            if len(self._bound) > BINDINGS_KEPT:
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
                    cluster_worker.store,
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
        digests = self._ask(cluster_worker.digests, [known] * len(self.address))
        sources: dict[tuple[str, bytes], int] = {}
        for device, found in enumerate(digests):
            for value in found.items():
                sources.setdefault(value, device)
        wanted: list[list[str]] = [[] for _ in self.address]
        for (name, _), device in sources.items():
            wanted[device].append(name)
        loaded = self._ask(cluster_worker.values, wanted)
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
                cluster_worker.feed,
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
            keys.append(add(f"{task.key[0]}-{task.id}", home, cluster_worker.run_task, *args))
        ends = []
        for device in range(len(self.spec.places)):
            made = [(t.id, _made_for(plan, t.id, device)) for t in plan.tasks]
            made = [(index, names) for index, names in made if names]
            wanted = [names if plan.tasks[i].is_collective else [] for i, names in made]
            refs = [TaskRef(keys[index]) for index, _ in made]
            args = (device, sorted(feeds.persistable), wanted, *refs, TaskRef(feed_keys[device]))
            ends.append(add(f"finish_dev{device}", device, cluster_worker.finish, *args))
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
            cluster_worker.load,
            self.token,
            device,
            name,
            workers=[self.address[device]],
            pure=False,
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
