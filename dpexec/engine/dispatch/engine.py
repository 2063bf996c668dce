"""The engine behind executors and compiled programs: compiles for some devices, and runs steps."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.kept_offsets import KeptOffsets
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.core import hooks
from dpexec.engine.core.errors import EnforceNotMet, mistake_behind
from dpexec.engine.core.memory import keep_freed_memory
from dpexec.engine.core.places import CPUPlace, Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.dispatch.binding_cache import BindingCache
from dpexec.engine.dispatch.failures import note_failure
from dpexec.engine.dispatch.feeding import Feeding
from dpexec.engine.dispatch.repeated_steps import RepeatedSteps
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.lod_readers import may_lack_sequences
from dpexec.engine.graph.lods import with_offsets
from dpexec.engine.ir.feed_fetch import without_feed_and_fetch
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.prune import deleted_for_good
from dpexec.engine.run.choice import make_runner
from dpexec.engine.run.fetch import FetchedOffsets, in_sequences
from dpexec.engine.run.shards import Shards
from dpexec.engine.run.step_runner import StepRunner
from dpexec.engine.strategy.placement import (
    collectives_in_force,
    scheduler_in_force,
    threads_configured,
    warn_of_one_thread,
)
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy
from dpexec.engine.threads.kernel_threads import one_kernel_thread
from dpexec.engine.trace import live
from dpexec.engine.trace.recorder import Recorder

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.runner import ClusterRunner
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Engine"]


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

    Attributes:
        feeding: turns what users feed into the feeds of the devices.
        repeated: runs steps that differ from the latest one only in the fed numbers.
        shows_sequences: whether variables that may be fetched hold sequences.
        keeps_sequences: whether persistable variables may hold some.
        steps_per_run: ``ExecutionStrategy.num_iteration_per_run``.

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
        if not places:
            raise AssertionError("No places for execution.")
        keep_freed_memory()
        self.label = program if label is None else label
        sequences = with_offsets(without_feed_and_fetch(program))
        self.program, self.offsets = sequences.program, FetchedOffsets(sequences)
        self.shows_sequences = bool(self.offsets)
        known = program.global_block().vars.values()
        self.keeps_sequences = any(var.persistable and var.lod_level for var in known)
        self.version = self.label._version
        self.build_strategy, self.execution_strategy = build_strategy, execution_strategy
        self.scheduler: Any = "sync"  # or "threads", or a Client of dask
        if execution_strategy is not None:
            self.scheduler = scheduler_in_force(execution_strategy.scheduler)
        self._on_cluster = not isinstance(self.scheduler, str)
        self._contact: Contact | None = None
        self.compilation = self._compile(places, scale_loss_grad)
        self.graph, self.pass_records = self.compilation.graph()
        self.places = list(self.graph.places)
        if self.graph.bodies and execution_strategy is None:
            self.execution_strategy, self.scheduler = ExecutionStrategy(), "threads"
        self._read_strategy()
        self.replicas = self._make_replicas(scope, share_from)
        self._kept_offsets = KeptOffsets(self.program.global_block(), self.replicas)
        self.observers = live.Observers()
        self.recorder = self._make_recorder()
        self.plan: Plan | None = None
        self.runner = self._make_runner()
        self.feeding = self._make_feeding()
        scope, agreement, here = self.replicas.scope, self.runner.agreement, not self._on_cluster
        self._shards = Shards(self.graph, scope, self.label, build_strategy, agreement, here)
        self.bindings = BindingCache(self.graph, self.compilation, self.replicas, here)
        self._busy = threading.Lock()
        self.repeated = RepeatedSteps(
            self.runner, self.replicas, self.observers, self.offsets, self._busy
        )
        self._cluster: ClusterRunner | None = None
        self._runs_since_drop = 0
        self._seal()
        live.join(self)

    def _compile(self, places: Sequence[Place], scale_loss_grad: bool) -> Compilation:
        strategy, execution = self.build_strategy, self.execution_strategy
        collectives = collectives_in_force(execution, self.scheduler, self.program)
        made = Compilation.of(self.program, list(places), strategy, scale_loss_grad, collectives)
        if strategy is not None and strategy.debug_graphviz_path:
            made.write_graphviz(strategy.debug_graphviz_path)
        return made

    def _make_replicas(self, scope: Scope, share_from: Engine | None) -> Replicas:
        if share_from is None:
            shared, away = self.compilation.in_common, self._on_cluster
            places = [CPUPlace()] * len(self.places) if away else self.places
            return Replicas(scope, places, shared, away)  # what comes home is on the host
        if len(share_from.places) != len(self.places):
            raise EnforceNotMet(
                f"share_vars_from has {len(share_from.places)} devices, but this program is "
                f"compiled for {len(self.places)}; they must be equal"
            )
        return share_from.replicas

    def _make_runner(self) -> StepRunner:
        threads = 0 if self.scheduler == "sync" else self.num_threads
        execution, trainers = self.execution_strategy, self.build_strategy
        if trainers is not None and (trainers.num_trainers == 1 or not self.graph.is_training):
            trainers = None
        return make_runner(
            self.replicas, self.label, self.program, execution, threads, trainers, self._on_cluster
        )

    def _make_feeding(self) -> Feeding:
        agreement = self.runner.agreement
        contact = (lambda: self.contact) if self._on_cluster else None
        begin = (lambda: None) if agreement is None else agreement.begin
        kept, steps, alone = self._kept_offsets, self.steps_per_run, self.build_strategy is None
        return Feeding(self.program, self.graph, kept, begin, contact, steps, alone)

    def _make_recorder(self) -> Recorder | None:
        """The recorder of all steps, if the strategy asks for a trace."""
        if self.execution_strategy is None or not self.execution_strategy.trace:
            return None
        recorder = Recorder()
        self.observers.add(recorder)
        return recorder

    def _seal(self) -> None:
        """Freeze the strategies; warn of replicas that would run one after another."""
        if not self._on_cluster:
            warn_of_one_thread(self.num_threads, len(self.places))
        for strategy in (self.build_strategy, self.execution_strategy):
            if strategy is not None:
                strategy.freeze("compilation")

    def _read_strategy(self) -> None:
        """Read the strategy's fields that every run needs; they do not change any more."""
        execution = self.execution_strategy
        self.steps_per_run: int = execution.num_iteration_per_run if execution else 1
        self._runs_per_drop: int = execution.num_iteration_per_drop_scope if execution else 1
        self._dry_run = bool(execution and execution._dry_run)

    # ---- running

    def batches(self, program: Program, feed: Any) -> list[Feeds]:
        """The feeds of every step of a run, see :meth:`Feeding.batches`; recorders see failures."""
        try:
            return self.feeding.batches(program, feed)
        except BaseException as error:
            note_failure(self._cluster or self.runner, self.observers, error, feeding=True)
            raise

    @functools.cached_property
    def _repeats(self) -> bool:
        """Whether :attr:`repeated` may run steps: a run does nothing else than its one step."""
        once = self.steps_per_run == self._runs_per_drop == 1 and not self._dry_run
        alone = not self._on_cluster and self.runner.agreement is None and not self.graph.bodies
        written = self._kept_offsets.written
        kept = self.keeps_sequences or self._kept_offsets.names or self.offsets.hold(written)
        return once and alone and not kept and not self._deleted

    @functools.cached_property
    def may_lack(self) -> set[str]:
        """The variables that may be fed without the sequences that they declare."""
        return may_lack_sequences(self.label) if self.offsets else set()

    @functools.cached_property
    def _deleted(self) -> list[str]:
        """The variables that a run takes from the scope."""
        return deleted_for_good(self.program.global_block())

    def run(
        self, batches: Sequence[Feeds], fetch: Sequence[str], merged: bool = True, wait: bool = True
    ) -> list[Any]:
        """Run a step for each batch.

        Args:
            batches: arrays per device, for every step.
            fetch: names of variables to return.
            merged: concatenate the devices' values along axis 0.
            wait: False returns when the steps are ordered, where the runner can do that.

        Returns:
            Results of the last step: per name an array, or a list with the array of every device.

        Raises:
            EnforceNotMet: something is wrong; no variable has changed.
        """
        began = time.perf_counter_ns() if self.observers.recorders else 0
        try:
            with self._busy:
                if not self.shows_sequences:
                    return self._run(batches, tuple(fetch), merged, {}, wait)
                return self._run_sequences(batches, fetch, merged, wait)
        except BaseException as error:
            note_failure(self._cluster or self.runner, self.observers, error, began)
            if not isinstance(error, EnforceNotMet):
                raise  # else the message says everything, the frames it passed nothing
            raise error.with_traceback(None) from mistake_behind(error)

    def _run_sequences(
        self, batches: Sequence[Feeds], fetch: Sequence[str], merged: bool, wait: bool
    ) -> list[Any]:
        """Run steps, and fetch the offsets of what holds sequences, too."""
        offsets = self.offsets.of(batches, fetch)
        kept = self.offsets.of(batches, self._kept_offsets.written)
        wanted = tuple(dict.fromkeys([*fetch, *offsets.values(), *kept.values()]))
        results = self._run(batches, wanted, merged, kept, wait or bool(offsets or kept))
        found: dict[Any, Any] = dict(zip(wanted, results, strict=True))
        return [in_sequences(found[name], found.get(offsets.get(name))) for name in fetch]

    def _run(
        self,
        batches: Sequence[Feeds],
        fetch: tuple[str, ...],
        merged: bool,
        kept: Mapping[str, str],
        wait: bool,
    ) -> list[Any]:
        """Run steps; ``kept`` has the fetched offsets of variables whose sequences stay."""
        self.repeated.latest = None
        agreement = self.runner.agreement
        if agreement is not None:
            agreement.begin()
        if self.graph.bodies:
            batches = [self.bindings.with_inner(feeds) for feeds in batches]
        ready = self.bindings.of_each(batches, fetch, merged)
        if agreement is not None:
            ready = [agreement.ready(b, feeds) for b, feeds in zip(ready, batches, strict=True)]
        self.plan = ready[-1].plan
        if self._dry_run:
            return [None for _ in fetch]
        if self._on_cluster:
            steps = list(zip(ready, batches, strict=True))
            runner = self._cluster_runner()
            results = runner.run(steps, self._shards, merged, wait)
            self._kept_offsets.store(batches[-1], kept, runner.fetched)
        else:
            with one_kernel_thread():
                for binding, feeds in zip(ready, batches, strict=True):
                    results = self._step(binding, feeds, merged)
                    if self._repeats:
                        cuts = self.feeding.split.latest
                        self.repeated.remember(cuts, feeds, binding, fetch, merged)
                    if kept or feeds.persistable:
                        self._kept_offsets.store(feeds, kept, self.runner.envs)
        self._runs_since_drop += 1
        if self._runs_since_drop == self._runs_per_drop:
            self.drop_local_scopes()
        if self._deleted:
            self.replicas.scope.erase(self._deleted)
        return results

    def _step(self, binding: Binding, feeds: Feeds, merged: bool) -> list[Any]:
        counter, recorders = self.observers.counter, self.observers.recorders
        shards_of = functools.partial(self._shards, feeds)
        if counter is not None:
            counter.begin(binding)
        results = None
        try:
            results = self.runner.step(binding, feeds, shards_of, merged, recorders)
            return results
        finally:
            if counter is not None:
                counter.end(feeds.samples, results)

    @property
    def contact(self) -> Contact | None:
        """The connection to the cluster, if there is one; all runs share it."""
        if self._on_cluster and self._cluster is None:
            from dpexec.engine.dispatch.contacts import contact_for  # 20 MB, if it is used

            strategy = self.execution_strategy
            assert strategy is not None
            self.scheduler, self._contact = contact_for(strategy, self.scheduler, self._contact)
        return self._contact

    def _cluster_runner(self) -> ClusterRunner:
        if self._cluster is None:
            execution, contact = self.execution_strategy, self.contact
            assert execution is not None and contact is not None
            from dpexec.engine.cluster.client.runner import ClusterRunner  # 20 MB, if it is used

            others = self.replicas, self.label, self.observers, self.feeding.coming
            self._cluster = ClusterRunner(contact, self.compilation, execution, *others)
            hooks.show_on_dashboard(self.scheduler, self, self._cluster.token[:8])  # may count
        return self._cluster

    @functools.cached_property
    def num_threads(self) -> int:
        """Size of the thread pool: as asked for, or as dask is told, else 4 per device."""
        asked = getattr(self.execution_strategy, "num_threads", 0)
        return int(asked or threads_configured() or 4 * len(self.places))

    def ahead(self, batches: Sequence[Feeds]) -> None:
        """Send what workers lack of the next batches, while they work on earlier ones."""
        if self._cluster is not None:
            self._cluster.ahead(batches)

    def settle(self) -> None:
        """Wait for steps that were ordered without waiting; see :meth:`run` for errors."""
        if self._cluster is not None:
            self._cluster.settle()

    @property
    def needs_local_scopes(self) -> bool:
        """Whether the temporaries of earlier runs were dropped."""
        return not self.runner.envs

    def drop_local_scopes(self) -> None:
        """Free the temporaries of earlier runs."""
        self.runner.envs = []
        self._runs_since_drop = 0

    def close(self) -> None:
        """Free what workers of a cluster hold, after fetching it.

        A later run begins with every device's own values, as it does on threads.

        Raises:
            ClusterError: the cluster has failed, and values are lost.
        """
        with self._busy:
            if self._cluster is not None and self._cluster.client.status == "running":
                found = self.program.list_vars()
                self._cluster.variables.bring_home(v.name for v in found if v.persistable)
                self._cluster.close()
            self._cluster = None
