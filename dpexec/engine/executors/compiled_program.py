"""``CompiledProgram``: a program, and how to run it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import dask

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.errors import EnforceNotMet, see, similar
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.dispatch.traces import trace_of
from dpexec.engine.executors.variants import AS_IT_IS, Variant
from dpexec.engine.graph.node_graph import Graph
from dpexec.engine.graph.parallel_do import parallel_dos
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.operator import op_error
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.parameter_server.remote import check_mode, remote_of
from dpexec.engine.strategy.placement import cpu_places_on, cuda_places_on, scheduler_in_force
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from dpexec.engine.trace.events import Trace

__all__ = ["CompiledProgram", "annotated", "check_strategies", "meant"]


class CompiledProgram:
    """A snapshot of a program, to be run by :class:`Executor`.

    Args:
        program_or_graph: the program, or ``IrGraph.graph``; operators appended later are not
            executed.
        build_strategy: how to build the graph.

    Raises:
        TypeError: the argument is neither a program nor a graph.

    See Also:
        :class:`~dpexec.Executor`: runs programs.
        :class:`~dpexec.ParallelExecutor`: the older form of both.
        :class:`~dpexec.BuildStrategy`: how the graph is built.
        :class:`~dpexec.ExecutionStrategy`: how it runs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.data("x", [None, 2]) * 2.0
        >>> two = fluid.CompiledProgram(main).with_data_parallel(places=fluid.cpu_places(2))
        >>> exe = fluid.Executor(fluid.CPUPlace())
        >>> exe.run(two, feed={"x": np.ones((4, 2), "float32")}, fetch_list=[y])[0].shape
        (4, 2)
    """

    def __init__(
        self, program_or_graph: Program | Graph, build_strategy: BuildStrategy | None = None
    ) -> None:
        program = program_or_graph
        if isinstance(program, Graph):
            program = program.to_program()
        if not isinstance(program, Program):
            raise TypeError(f"CompiledProgram takes a Program or a Graph, but received {program!r}")
        check_strategies(build_strategy, None)
        self._original = program
        self._remote = remote_of(program)
        self._program = program.clone() if self._remote is None else self._remote.local
        self._build_strategy = build_strategy
        self._exec_strategy: ExecutionStrategy | None = None
        self._is_data_parallel = False
        self._loss_name: str | None = None
        self._share_vars_from: CompiledProgram | None = None
        self._places: list[Place] | None = None
        self._engine: Engine | None = None
        self._first = AS_IT_IS
        self._is_usual = False  # whether the first run was one of the whole program as it is
        self._others: LimitedCache[Variant, Engine] = LimitedCache(
            limit_of("engines of other runs")
        )
        self._scope: Scope | None = None
        self._place: Place | None = None
        self._executor: weakref.ref[Any] | None = None  # in which it ran last
        self._annotations: dict[str, Any] = {**dask.get_annotations()}

    def with_data_parallel(
        self,
        loss_name: str | None = None,
        build_strategy: BuildStrategy | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        share_vars_from: CompiledProgram | None = None,
        places: Sequence[Any] | Place | None = None,
    ) -> CompiledProgram:
        """Run the program on several devices, each with a part of the batch.

        Args:
            loss_name: name of the loss; needed when the program has gradients.
            build_strategy: overrides the constructor's.
            exec_strategy: how to run the plan.
            share_vars_from: use the parameters of this program, which ran before.
            places: the devices; None takes the visible GPUs (one per worker of a cluster) or, see
                :func:`dpexec.cpu_places`, all CPU devices of the process or cluster at the first
                run.

        Returns:
            self.

        Raises:
            AssertionError: called twice, or loss_name is missing.
            TypeError: loss_name is not a string, or a strategy or the places something else.
            EnforceNotMet: the program has a ParallelDo.
        """
        if self._is_data_parallel:
            raise AssertionError("Already compiled with parallel, cannot be recompiled.")
        if isinstance(loss_name, Variable) or not isinstance(loss_name, (str, type(None))):
            raise TypeError(f"loss_name is the name of the loss, but received {type(loss_name)}")
        check_strategies(build_strategy, exec_strategy)
        if not isinstance(places, (Place, Iterable, type(None))):
            raise TypeError(f"places must be a place or a list of places, but are {places!r:.80}")
        shared: Any = share_vars_from
        if not isinstance(shared, (CompiledProgram, type(None))):
            found = type(shared).__name__
            raise TypeError(f"share_vars_from takes a CompiledProgram, but received {found}")
        grads = any(op.type.endswith("_grad") for op in self._program.global_block().ops)
        if loss_name is None and grads:
            raise AssertionError(
                "The loss name of CompiledProgram is None, but the program has gradients. "
                "Give loss_name, or compile a forward-only program (clone(for_test=True))."
            )
        for op in parallel_dos(self._program):
            problem = "it divides its own batch; run the program with Executor.run instead"
            raise op_error(op, f"with_data_parallel is not for ParallelDo: {problem}", {})
        if loss_name is not None and not self._program.global_block().has_var(loss_name):
            known = similar(loss_name, self._program.global_block().vars)
            warn(f"loss_name {loss_name!r} is no variable of the program{known}")
        self._is_data_parallel = True
        self._annotations = {**self._annotations, **dask.get_annotations()}
        self._loss_name = loss_name
        self._build_strategy = build_strategy or self._build_strategy
        self._exec_strategy = exec_strategy
        self._share_vars_from = share_vars_from
        if places is not None:
            self._places = [places] if isinstance(places, Place) else list(places)
        return self

    def __repr__(self) -> str:
        where = "one device"
        if self._is_data_parallel:
            strategy = self._build_strategy or BuildStrategy()
            kinds = ", ".join(sorted({str(place) for place in self._places or ()}))
            known = f"{len(self._places)} devices ({kinds})" if self._places else "all devices"
            where = f"{known}, {strategy.reduce_strategy.name}"
        state = "not run yet" if self._engine is None else "compiled"
        ops = len(self._program.global_block().ops)
        return f"<CompiledProgram: {ops} operators on {where}, {state}>"

    def delayed(
        self,
        feed: Any = None,
        fetch_list: Any = None,
        scope: Scope | None = None,
        executor: Any = None,
        **options: Any,
    ) -> Delayed:
        """A run, or several, as a node of a dask graph: see :meth:`Executor.delayed`.

        Args:
            feed: see :meth:`Executor.run`.
            fetch_list: see :meth:`Executor.run`.
            scope: None takes that of the first run, else the global scope.
            executor: where it runs; None takes the executor in which it ran last.
            options: ``feeds`` for several runs, and other arguments of :meth:`Executor.delayed`.

        Returns:
            As many delayed values as there are fetches.

        Raises:
            EnforceNotMet: the program did not run yet, or its executor is gone.
            RuntimeError: the executor was closed.
        """
        executor = executor or (None if self._executor is None else self._executor())
        if executor is None:
            why = "has not run in an executor yet" if self._executor is None else "has lost its own"
            raise EnforceNotMet(
                f"CompiledProgram.delayed needs an executor, and the program {why}: pass "
                "executor=exe, or delay the run with exe.delayed(compiled, feed, fetch_list)"
            )
        scope = self._scope if scope is None else scope
        return executor.delayed(self, feed, fetch_list, scope, **options)

    # ---- compilation, at the first run

    def _compile(self, scope: Scope, place: Place, variant: Variant = AS_IT_IS) -> Engine:
        """The engine that runs the program in some form.

        The whole program is compiled first, with the sequences of that run; other forms share its
        variables.
        """
        if self._engine is None:
            self._first = replace(variant, pruning=None)
            self._is_usual = self._first == AS_IT_IS
            source, shared = self._first.of(self._program), self._shared_engine()
            self._engine = self._engine_of(source, place, scope, shared)
            self._scope, self._place = scope, place
            self._places = list(self._engine.places)  # tools count them
        self._check_home(scope, place)
        if variant == self._first:
            return self._engine
        engine = self._others.get(variant)
        if engine is None:  # the updates that are wanted are those of the user's program
            own = variant.pruning is None or self._remote is not None
            source = variant.of(self._program if own else self._original)
            engine = self._others[variant] = self._engine_of(source, place, scope, self._engine)
        return engine

    def _usual_engine(self, scope: Scope, place: Place) -> Engine | None:
        """The engine of the whole program in this scope, if it ran here before."""
        here = self._scope is scope and (self._place is place or self._place == place)
        return self._engine if self._is_usual and here else None

    def _check_home(self, scope: Scope, place: Place) -> None:
        both = {"scope": (scope, self._scope), "place": (place, self._place)}
        for what, (given, known) in both.items():
            if given != known:
                problem = (
                    f"Cannot compile program with different {what}. It belongs to that of its "
                    "first run: make another CompiledProgram"
                )
                raise see("a-compiled-program-with-another-scope", ValueError(problem))

    def _engine_of(
        self, program: Program, place: Place, scope: Scope, share_from: Engine | None
    ) -> Engine:
        places = self._resolve_places(place) if self._is_data_parallel else [place]
        build_strategy = execution_strategy = None
        if self._is_data_parallel:
            build_strategy = self._build_strategy or BuildStrategy()
            check_mode(self._remote, build_strategy)
            execution_strategy = self._exec_strategy or ExecutionStrategy()
        return Engine(
            program,
            places,
            scope,
            build_strategy,
            execution_strategy,
            share_from=share_from,
            scale_loss_grad=self._is_data_parallel and self._loss_name != "",
            label=self._original,
        )

    def _resolve_places(self, place: Place) -> list[Place]:
        places = self._places
        if places is None:
            strategy = self._exec_strategy or ExecutionStrategy()
            scheduler = scheduler_in_force(strategy.scheduler)
            on_gpus = isinstance(place, CUDAPlace)
            places = list(cuda_places_on(scheduler) if on_gpus else cpu_places_on(scheduler))
        if not places:
            raise AssertionError(
                f"No places for execution. CPU_NUM is {os.environ.get('CPU_NUM', 'not set')}, "
                f"places is {self._places}"
            )
        if not all(type(p) is type(place) for p in places):
            raise AssertionError(f"the places {places} must be of the Executor's kind, {place}")
        return places

    def _shared_engine(self) -> Engine | None:
        source = self._share_vars_from
        if source is None:
            return None
        if not source._is_data_parallel:
            raise ValueError("share_vars_from is not data parallel. Cannot share vars from it.")
        if source._engine is None:
            raise ValueError(
                "The shared Program is not compiled and executed, so there is no variables to "
                "share: run it once before."
            )
        return source._engine

    # ---- views

    @property
    def _compiled(self) -> Engine:
        if self._engine is None:
            raise EnforceNotMet("the program is compiled at its first run; run it once before")
        return self._engine

    @property
    def graph(self) -> SSAGraph:
        """The SSA graph, after the first run."""
        return self._compiled.graph

    @property
    def plan(self) -> Plan | None:
        """The plan of the latest run."""
        return self._compiled.plan

    @property
    def trace(self) -> Trace:
        """The trace of recorded steps; needs ``ExecutionStrategy.trace``.

        Raises:
            RuntimeError: recording was not switched on.
        """
        engine = self._compiled
        if engine.recorder is None:
            raise RuntimeError("nothing was recorded: set ExecutionStrategy.trace = True first")
        return trace_of(engine, engine.recorder)


def meant(
    program: Program | CompiledProgram | None, scope: Scope | None, executor: Any
) -> tuple[Program | CompiledProgram, Scope]:
    """The program and the scope that a run is to have.

    Args:
        program: None for the default main program; a compiled one knows the executor from then on.
        scope: None for the global scope.
        executor: who runs it.

    Raises:
        RuntimeError: the executor was closed.
        TypeError: one is something else.
    """
    if executor._closed:
        raise see("an-executor-that-was-closed", RuntimeError("Attempted to use a closed Executor"))
    scope = global_scope() if scope is None else scope
    if not isinstance(scope, Scope):
        raise TypeError(f"Executor.run takes a Scope, but received scope={scope!r}")
    program = default_main_program() if program is None else program
    if isinstance(program, CompiledProgram):
        program._executor = weakref.ref(executor)
    elif not isinstance(program, Program):
        raise TypeError(
            f"Executor requires Program as its Parameter. But you passed in {type(program)}"
        )
    return program, scope


def annotated(
    program: Program | CompiledProgram,
) -> contextlib.AbstractContextManager[None]:
    """Dask's annotations of a run: those around the program's compilation and around the run."""
    if isinstance(program, Program) or not program._annotations:
        return contextlib.nullcontext()
    return dask.annotate(**{**program._annotations, **dask.get_annotations()})


def check_strategies(build_strategy: Any, exec_strategy: Any) -> None:
    """Check the types of both strategies; None stands for the defaults.

    Raises:
        TypeError: one is something else.
    """
    for strategy, kind in ((build_strategy, BuildStrategy), (exec_strategy, ExecutionStrategy)):
        if not isinstance(strategy, (kind, type(None))):
            raise TypeError(f"a {kind.__name__} is expected, but received {strategy!r:.80}")
