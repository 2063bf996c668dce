"""The engine: compiles a program for some devices, and runs its steps.

Executor, ParallelExecutor and CompiledProgram are thin shells around it.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpexec.core import flags
from dpexec.core.memory import keep_freed_memory
from dpexec.core.places import CUDAPlace, Place, array_module, available_cpus, on_device
from dpexec.core.scope import Scope
from dpexec.errors import EnforceNotMet
from dpexec.ir.program import Program
from dpexec.runtime.binding import Binding, Memory
from dpexec.runtime.check import Rules, check_fetch_names, check_merge, check_run
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feed import Feeds
from dpexec.runtime.fetch import collect
from dpexec.runtime.inner import (
    busy_devices,
    count_rows,
    parts_of_rows,
    split_pre_fetched,
    splitter,
)
from dpexec.runtime.interrupts import InterruptGate
from dpexec.runtime.plan import Plan
from dpexec.runtime.replicas import Replicas
from dpexec.runtime.schedulers.distributed import ClusterRunner
from dpexec.runtime.schedulers.local import (
    LocalGraph,
    LocalScheduler,
    inline,
    one_kernel_thread,
)
from dpexec.runtime.steps import Env, Shard, run_steps
from dpexec.runtime.strategy import BuildStrategy, ExecutionStrategy
from dpexec.trace import live, profile
from dpexec.trace.recorder import Recorder

if TYPE_CHECKING:
    from dpexec.trace.events import Trace

__all__ = ["Engine"]

_PLANS_KEPT = 32
_BINDINGS_KEPT = 64
_OPERATORS_KEPT = 50_000  # of bindings: more of them are kept for a small program
_SIGNATURES_KEPT = 256


class Engine:
    """Runs a program on some devices.

    Args:
        program: compiled as it is now; later changes are not seen.
        places: the devices.
        scope: where persistable variables live.
        build_strategy: None runs the operators as they are (plain Executor).
        execution_strategy: None runs them on the calling thread.
        share_from: an engine whose persistable variables are used, device by device.
        scale_loss_grad: seed the loss gradient with the device's share of the batch.
        label: the user's program, when ``program`` is a copy of it.

    Raises:
        AssertionError: no devices.
        EnforceNotMet: ``share_from`` has another number of devices.
    """

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        scope: Scope,
        build_strategy: BuildStrategy | None = None,
        execution_strategy: ExecutionStrategy | None = None,
        share_from: Engine | None = None,
        scale_loss_grad: bool = False,
        label: Program | None = None,
    ) -> None:
        assert places, "No places for execution."
        keep_freed_memory()
        self.program = program
        self.label = program if label is None else label
        self.version = self.label._version
        self.places = list(places)
        self.build_strategy = build_strategy
        self.execution_strategy = execution_strategy
        self.compilation = Compilation.of(
            program, self.places, build_strategy, scale_loss_grad, self._on_cluster
        )
        self.graph, self.pass_records = self.compilation.graph()
        self.places = list(self.graph.places)
        if self.graph.bodies and execution_strategy is None:
            execution_strategy = self.execution_strategy = ExecutionStrategy()
        if build_strategy is not None and build_strategy.debug_graphviz_path:
            self.compilation.write_graphviz(build_strategy.debug_graphviz_path, self.graph)
        self.prepare = splitter(self.graph)
        self.replicas = self._make_replicas(scope, share_from)
        self.recorder = Recorder() if execution_strategy and execution_strategy.trace else None
        self.plan: Plan | None = None
        self._plans: dict[Any, Plan] = {}
        self._graphs: dict[Plan, dict[bool, LocalGraph]] = {}
        self._bindings: dict[Any, Binding] = {}
        self._binding: Binding | None = None
        self._memory = Memory()
        self._rules = Rules()
        self._rows: dict[Any, dict[int, int]] = {}
        self._envs: list[Env] = []
        self._sampled: Recorder | None = None
        self._gate = InterruptGate()
        self._busy = threading.Lock()
        self._cluster: ClusterRunner | None = None
        self._runs_since_drop = 0
        if self.num_threads < 2 <= len(self.places) and not self._on_cluster:
            warnings.warn(
                f"ExecutionStrategy.num_threads = 1 runs the {len(self.places)} replicas one after "
                "another; leave it at 0, or set it to the number of processors",
                stacklevel=5,
            )
        if build_strategy is not None:
            build_strategy.freeze("compilation")
        if execution_strategy is not None:
            execution_strategy.freeze("compilation")

    # ---- compilation

    @property
    def is_training(self) -> bool:
        """Whether the program has gradients."""
        return any(node.role == "backward" for node in self.graph.ops)

    @property
    def _on_cluster(self) -> bool:
        strategy = self.execution_strategy
        return strategy is not None and not isinstance(strategy.scheduler, str)

    def _make_replicas(self, scope: Scope, share_from: Engine | None) -> Replicas:
        if share_from is None:
            shared = self.compilation.options.shared_memory or self._on_cluster
            return Replicas(scope, self.places, shared)
        if len(share_from.places) != len(self.places):
            raise EnforceNotMet(
                f"share_vars_from has {len(share_from.places)} devices, but this program is "
                f"compiled for {len(self.places)}; they must be equal"
            )
        return share_from.replicas

    def _plan_for(self, fetch: tuple[str, ...], feeds: Feeds) -> Plan:
        fed = frozenset(name for values in feeds.values for name in values)
        checked = bool(flags.globals()["FLAGS_check_nan_inf"])
        key = (fetch, fed, feeds.idle, checked, busy_devices(self.graph, feeds.rows))
        if key not in self._plans:
            check_fetch_names(self.program.global_block(), fetch)
            if len(self._plans) >= _PLANS_KEPT:
                self._graphs.pop(self._plans.pop(next(iter(self._plans))), None)
            self._plans[key] = self.compilation.plan(self.graph, *key)
        return self._plans[key]

    # ---- running

    @property
    def steps_per_run(self) -> int:
        """How many steps a run makes: ``ExecutionStrategy.num_iteration_per_run``."""
        strategy = self.execution_strategy
        return strategy.num_iteration_per_run if strategy else 1

    def run(self, batches: Sequence[Feeds], fetch: Sequence[str], merged: bool = True) -> list[Any]:
        """Run a step for each batch.

        Args:
            batches: arrays per device, for every step.
            fetch: names of variables to return.
            merged: concatenate the devices' values along axis 0.

        Returns:
            What the last step gave: per name an array, or a list with the array of every device.

        Raises:
            EnforceNotMet: something is wrong; no variable has changed.
        """
        with self._busy:
            if self.graph.bodies:
                batches = [self._with_inner(feeds) for feeds in batches]
            ready = [self._prepare(feeds, tuple(fetch), merged) for feeds in batches]
            strategy = self.execution_strategy
            if strategy is not None and strategy._dry_run:
                return [None for _ in fetch]
            with one_kernel_thread():
                for binding, feeds in zip(ready, batches, strict=True):
                    results = self._step(binding, feeds, merged)
            self._count_towards_drop()
            return results

    def _with_inner(self, feeds: Feeds) -> Feeds:
        """The feeds of all devices, those of ParallelDos included."""
        feeds = split_pre_fetched(self.graph, feeds)
        key = (_shapes(feeds), self.replicas.generation)
        if key not in self._rows:
            if len(self._rows) >= _SIGNATURES_KEPT:
                self._rows.clear()
            self._rows[key] = count_rows(self.graph, feeds, self.replicas)
        return replace(feeds, rows=self._rows[key])

    def _prepare(self, feeds: Feeds, fetch: tuple[str, ...], merged: bool) -> Binding:
        """What to run for a batch, if all that can be known before says that it will run."""
        plan = self.plan = self._plan_for(fetch, feeds)
        self.replicas.sync(plan, plan.reads)
        key = (plan, _shapes(feeds), merged, self.replicas.generation)
        binding = self._bindings.pop(key, None)
        if binding is None:
            specs = check_run(
                self.graph, plan.live, plan.missing, feeds.values, self.replicas, self._rules
            )
            for name in plan.fetch:
                found = [specs[device].get(name) for device in plan.active]
                check_merge(name, found if merged else found[:1])
            compiled = self.compilation
            binding = Binding(plan, specs, compiled.native, self._memory, compiled.halves)
        self._bindings[key] = binding  # the latest used is last
        if len(self._bindings) > max(_BINDINGS_KEPT, _OPERATORS_KEPT // len(plan.nodes or [0])):
            del self._bindings[next(iter(self._bindings))]
        return binding

    def _step(self, binding: Binding, feeds: Feeds, merged: bool) -> list[Any]:
        watcher = live.watcher()
        if watcher is None:
            return self._one_step(binding, feeds, merged)
        self._sampled = watcher.begin(self, binding)
        results = None
        try:
            results = self._one_step(binding, feeds, merged)
            return results
        finally:
            self._sampled = None
            watcher.end(self, sum(feeds.samples[d] for d in self.graph.replicas), results)

    def _one_step(self, binding: Binding, feeds: Feeds, merged: bool) -> list[Any]:
        plan = binding.plan
        shards = self._shards(feeds)
        if self._on_cluster:
            cluster = self._cluster_runner()
            with _profiled("distributed step"):
                results = cluster.step(binding, feeds, shards, self.replicas, merged)
            self.replicas.scope.count_run(self.label)
            return results
        self._binding = binding
        assert binding.steps is not None  # bound here, before tasks of several threads ask for it
        self._envs = self._make_envs(plan, feeds, shards)
        with InterruptGate() as self._gate:
            try:
                results = self._schedule(plan, merged)
            except BaseException:
                self._envs = []
                raise
            self._gate.begin_updates()
            self._commit(plan, feeds)
            self.replicas.scope.count_run(self.label)
        return results

    def _shards(self, feeds: Feeds) -> list[Shard]:
        run = self.replicas.scope.run_count(self.label)
        entropy = secrets.randbits(62) + 1
        replicas = self.graph.replicas
        total = max(sum(feeds.samples[device] for device in replicas), 1)
        one = self.build_strategy is not None and (
            self.build_strategy.gradient_scale_strategy == BuildStrategy.GradientScaleStrategy.One
        )
        shards = []
        for device, parts in enumerate(parts_of_rows(self.graph, feeds.rows)):
            samples = feeds.samples[device]
            first = sum(feeds.samples[:device]) if device in replicas else 0
            share = samples / total
            weight = 1.0 if one else share
            shards.append(Shard(run, entropy, first, max(samples, 1), weight, parts, share))
        return shards

    def _make_envs(self, plan: Plan, feeds: Feeds, shards: Sequence[Shard]) -> list[Env]:
        envs = []
        fed = feeds.private(self.replicas.shared)
        for device, (shard, values) in enumerate(zip(shards, fed, strict=True)):
            found = ((name, self.replicas.tensor(device, name)) for name in plan.reads[device])
            stored = {name: tensor.array for name, tensor in found if tensor is not None}
            envs.append(plan.make_env(shard, {**stored, **self._on_device(device, values)}))
        return envs

    def _cluster_runner(self) -> ClusterRunner:
        if self._cluster is None:
            assert self.execution_strategy is not None
            self._cluster = ClusterRunner(self.execution_strategy.scheduler, self.compilation)
        return self._cluster

    def _on_device(self, device: int, values: dict[str, Any]) -> dict[str, Any]:
        place = self.places[device]
        if not isinstance(place, CUDAPlace):
            return values
        with on_device(place):
            return {name: array_module(place).asarray(array) for name, array in values.items()}

    def _schedule(self, plan: Plan, merged: bool) -> list[Any]:
        def run_task(number: int) -> None:
            self._run_task(plan, number)

        def fetch() -> list[Any]:
            with _profiled("Fetch"):
                return collect(self._envs, plan.fetch, plan.active, merged)

        strategy = self.execution_strategy
        if strategy is None:
            return inline(plan, run_task, fetch)
        graphs = self._graphs.setdefault(plan, {})
        if merged not in graphs:
            graphs[merged] = LocalGraph(plan, run_task, fetch)
        self._gate.between_tasks = self._scheduler.caller_works
        return self._scheduler.run(graphs[merged])

    @functools.cached_property
    def _scheduler(self) -> LocalScheduler:
        strategy = self.execution_strategy
        assert strategy is not None
        threads = 0 if strategy.scheduler == "sync" else self.num_threads
        return LocalScheduler(threads, strategy.use_experimental_executor)

    def _run_task(self, plan: Plan, number: int) -> None:
        assert self._binding is not None
        task, steps = plan.tasks[number], self._binding.steps[number]
        self._gate.begin_task()
        if number in plan.updates:
            self._gate.begin_updates()
        place = self.places[task.device or 0]
        with on_device(place):
            recorder = profile.with_profile(self.recorder, self._sampled)
            if recorder is None:
                run_steps(steps, self._envs)
                return
            start = time.perf_counter()
            run_steps(steps, self._envs, recorder, task.key[0])
            recorder.add(task.key[0], "task", task.device, task.key[0], start, time.perf_counter())

    @property
    def num_threads(self) -> int:
        """Size of the thread pool: as asked for, else 4 per device."""
        asked = self.execution_strategy.num_threads if self.execution_strategy else 0
        return asked or 4 * len(self.places)

    def _commit(self, plan: Plan, feeds: Feeds) -> None:
        reads = enumerate(plan.reads) if plan.commits else ()
        held = {id(self._envs[d].get(name)) for d, names in reads for name in names}
        for device, name in plan.commits:
            value = self._envs[device].get(name)
            if value is None:
                continue
            if getattr(value, "base", None) is not None or id(value) in held:
                value = value.copy()  # two variables must never share memory
            held.add(id(value))
            self.replicas.commit(device, name, value)
        shared = self.replicas.shared
        done = {name if shared else (device, name) for device, name in plan.commits}
        for device, env in enumerate(self._envs[:1] if shared else self._envs):
            for name in feeds.persistable & env.keys():
                if (name if shared else (device, name)) not in done:
                    self.replicas.commit(device, name, env[name].copy())
        names = {name for _, name in (*plan.commits, *plan.overwritten)}
        self.replicas.written(names | feeds.persistable)

    # ---- temporaries

    @property
    def needs_local_scopes(self) -> bool:
        """Whether the temporaries of earlier runs were dropped."""
        return not self._envs

    def _count_towards_drop(self) -> None:
        self._runs_since_drop += 1
        limit = (
            self.execution_strategy.num_iteration_per_drop_scope if self.execution_strategy else 1
        )
        if self._runs_since_drop == limit:
            self.drop_local_scopes()

    def drop_local_scopes(self) -> None:
        """Free the temporaries of earlier runs."""
        self._envs = []
        self._runs_since_drop = 0

    # ---- views

    @property
    def trace(self) -> Trace:
        """What ran when, since the engine was made or :meth:`Recorder.clear` was called.

        Raises:
            RuntimeError: recording was not switched on.
        """
        if self.recorder is None:
            raise RuntimeError("nothing was recorded: set ExecutionStrategy.trace = True first")
        return self.recorder.trace(
            devices=len(self.places), num_threads=self.num_threads, cpus=available_cpus()
        )


def _shapes(feeds: Feeds) -> Any:
    return tuple(
        tuple((name, a.shape, a.dtype.str) for name, a in values.items()) for values in feeds.values
    )


@contextlib.contextmanager
def _profiled(name: str) -> Iterator[None]:
    """Tell the profile of the process, if there is one, what a ``with`` block did."""
    recorder = profile.active()
    start = time.perf_counter()
    yield
    if recorder is not None:
        recorder.add(name, "op", None, name, start, time.perf_counter())
