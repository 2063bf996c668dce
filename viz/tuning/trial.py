"""Runs a strategy on a copy of the state, so that the user's state does not change."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from dpexec.viz.tuning.settings import Setting, Situation

from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.core import flags
from dpexec.engine.core.places import CPUPlace, Place, available_cpus, on_gpus
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.core.variable_values import with_sequences, write
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.dispatch.traces import trace_of
from dpexec.engine.executors.compiled_program import CompiledProgram
from dpexec.engine.executors.parallel_executor import ParallelExecutor
from dpexec.engine.executors.variants import Variant, fed_levels
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program
from dpexec.engine.passes import PassRecord
from dpexec.engine.run.fetch import as_arrays, wanted
from dpexec.engine.strategy.placement import scheduler_in_force
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy
from dpexec.engine.trace import Recorder, Trace, live


@dataclass(frozen=True)
class Subject:
    """The program that is tuned, with its batch, as the user runs it.

    Args:
        program: A copy of the program, in the form that the batch needs.
        label: The user's program, whose runs the scope counts.
        places: The devices.
        scope: Scope of the user's variables.
        build: The user's BuildStrategy.
        execution: The user's ExecutionStrategy.
        scaled: Whether the gradient of the loss is seeded with the device's share of the batch.
        feed: The feed of a step; variables from loaders of `source` may be missing.
        source: The program whose loaders are used.
        fetch: Names of the variables that a step returns.
    """

    program: Program
    label: Program
    places: Sequence[Place]
    scope: Scope
    build: BuildStrategy
    execution: ExecutionStrategy
    scaled: bool
    feed: Any
    source: Program
    fetch: tuple[str, ...]

    @classmethod
    def of(
        cls, replicas: Any, feed: Any, fetch_list: Any, scope: Scope | None, loads: bool
    ) -> Subject:
        """Return the subject for an executor or compiled program, see `tune`.

        Args:
            loads: Whether loaders of the program may give a batch.
        """
        compiled, scope, place = _parts(replicas, scope)
        _check(compiled, scope)
        source = compiled._program
        if feed is None and source._loaders and not loads:
            raise ValueError(
                "tuning takes no batch from the loaders of the program, as training would miss it: "
                "give a batch as feed"
            )
        variant = Variant(None, fed_levels(source, feed, scope))
        program = variant.of(source).clone()
        program._loaders = []
        fetch = wanted(fetch_list)[0] or [name for name in [compiled._loss_name] if name]
        return cls(
            program,
            compiled._original,
            compiled._resolve_places(place),
            scope,
            compiled._build_strategy or BuildStrategy(),
            compiled._exec_strategy or ExecutionStrategy(),
            compiled._loss_name != "",
            feed,
            source if loads else program,
            tuple(fetch),
        )

    def situation(self, gradient_bytes: int) -> Situation:
        """Return the facts that decide which settings are considered."""
        scheduler = scheduler_in_force(self.execution.scheduler)
        return Situation(
            self.build,
            self.execution,
            len(self.places),
            available_cpus(),
            scheduler,
            self.execution.num_threads or 4 * len(self.places),
            on_gpus(self.places),
            gradient_bytes,
        )

    @cached_property
    def acting(self) -> list[str]:
        """The types of operators with side effects."""
        ops = (op for one in self.program.global_block().ops for op in one.with_inner())
        return sorted({op.type for op in ops if op.definition.acts})

    def state(self) -> Scope:
        """Return a scope with copies of the variables that the program keeps."""
        made = Scope()
        for var in self.program.list_vars():
            found = self.scope.find_var(var.name) if var.persistable else None
            if found is None:
                continue
            value = with_sequences(found)
            if value is not None:
                write(made.var(var.name), value)
            elif isinstance(found.value, (int, float)):
                made.var(var.name).value = found.value
        made.set_run_count(self.program, self.scope.run_count(self.label))
        return made

    def strategies(self, setting: Setting) -> tuple[BuildStrategy, ExecutionStrategy]:
        """Return new strategies for a trial, which writes no files and records nothing."""
        build = self.build.with_fields(debug_graphviz_path="", **setting.build)
        return build, self.execution.with_fields(trace=False, **setting.execution)

    def compiled(self, setting: Setting) -> tuple[SSAGraph, list[PassRecord]]:
        """Compile with a setting, up to the graph; also return a record of each pass."""
        with _flags(setting):
            build, _ = self.strategies(setting)
            made = Compilation.of(self.program, list(self.places), build, self.scaled)
        return made.graph()


def _parts(replicas: Any, scope: Scope | None) -> tuple[CompiledProgram, Scope, Place]:
    place: Place | None = None
    if isinstance(replicas, ParallelExecutor):
        scope = replicas._scope
        place = replicas._executor.place
        replicas = replicas._compiled_program
    if not isinstance(replicas, CompiledProgram):
        raise TypeError(
            "tune takes a ParallelExecutor or a CompiledProgram, but received a "
            f"{type(replicas).__name__}"
        )
    known = replicas._places or [CPUPlace()]
    found = replicas._scope or scope or global_scope()
    return replicas, found, place or replicas._place or known[0]


def _check(compiled: CompiledProgram, scope: Scope) -> None:
    """Reject programs that cannot be tried without side effects.

    Raises:
        ValueError: The program cannot be tried; the message gives the reason.
    """
    if not compiled._is_data_parallel:
        raise ValueError("the program has no strategies to tune: compile it with_data_parallel")
    build = compiled._build_strategy or BuildStrategy()
    execution = compiled._exec_strategy or ExecutionStrategy()
    if compiled._remote is not None or build.num_trainers > 1 or scope.rings():
        raise ValueError(
            "the program trains together with other processes, which would have to try the same: "
            "tune it in one process, or compare traces with viz.compare"
        )
    if not isinstance(scheduler_in_force(execution.scheduler), str):
        raise ValueError(
            "strategies are tried on the threads of this process, but the program runs on a "
            "cluster: tune it with ExecutionStrategy.scheduler = 'threads' and as many places as a "
            "worker has, or compare traces of the cluster with viz.compare"
        )
    for op in (op for one in compiled._program.global_block().ops for op in one.with_inner()):
        if op.definition.acts and not op.output_arg_names:  # such as to write a file
            raise ValueError(
                f"the program has an operator {op.type}, which would do in every trial what it "
                "does: tune the program without it"
            )


class Trial:
    """Runs a setting on a copy of the state.

    Args:
        subject: The program to tune.
        setting: The difference from the user's settings.

    Raises:
        EnforceNotMet: The setting is impossible for this program.
    """

    def __init__(self, subject: Subject, setting: Setting) -> None:
        self.setting, self.subject = setting, subject
        self.fetched: list[Any] = []
        build, execution = subject.strategies(setting)
        with _flags(setting):
            self.engine = Engine(
                subject.program,
                subject.places,
                subject.state(),
                build,
                execution,
                scale_loss_grad=subject.scaled,
            )
        for watcher in live.watchers():  # profilers and pages show only the user's runs
            watcher.part(self.engine)

    def batches(self) -> list[Feeds]:
        """Return the feeds of the steps of a call, with batches from loaders if there are any."""
        return self.engine.batches(self.subject.source, self.subject.feed)

    def run(self, batches: Sequence[Feeds], calls: int) -> float:
        """Run steps; returns the seconds of one, the median over the calls.

        Args:
            batches: The feeds of the steps of a call.
            calls: Number of calls.
        """
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            self.fetched = as_arrays(self.engine.run(batches, self.subject.fetch))
            times.append(time.perf_counter() - start)
        return statistics.median(times) / len(batches)

    def recorded(self, batches: Sequence[Feeds], calls: int) -> Trace:
        """Run steps and record them."""
        recorder = Recorder()
        self.engine.observers.add(recorder)
        try:
            self.run(batches, calls)
        finally:
            self.engine.observers.remove(recorder)
        return trace_of(self.engine, recorder)


@contextlib.contextmanager
def untouched() -> Iterator[None]:
    """Restore the random generators of Python and NumPy, from which `py_func` may draw."""
    drawn = random.getstate(), np.random.get_state()  # noqa: NPY002 - the global one
    try:
        yield
    finally:
        random.setstate(drawn[0])
        np.random.set_state(drawn[1])  # noqa: NPY002


@contextlib.contextmanager
def _flags(setting: Setting) -> Iterator[None]:
    """Set flags while a program is compiled."""
    before = flags.get_flags(list(setting.flags))
    flags.set_flags(dict(setting.flags))
    try:
        yield
    finally:
        flags.set_flags(before)
