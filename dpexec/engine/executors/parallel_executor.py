"""``ParallelExecutor``: data-parallel training and prediction on the devices of one machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.core.places import CPUPlace, CUDAPlace, is_compiled_with_cuda, why_no_gpu
from dpexec.engine.core.scope import Scope, global_scope
from dpexec.engine.executors.compiled_program import CompiledProgram, check_strategies
from dpexec.engine.executors.executor import Executor
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.program import Program, default_main_program
from dpexec.engine.strategy.placement import cpu_places_on, cuda_places_on, scheduler_in_force
from dpexec.engine.strategy.strategies import BuildStrategy, ExecutionStrategy

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from dpexec.engine.trace.events import Trace

__all__ = ["ParallelExecutor"]


class ParallelExecutor:
    """Runs replicas of a program on several devices and keeps them equal.

    Args:
        use_cuda: GPUs (all visible ones, or one per worker of a cluster) or CPU devices (see
            :func:`dpexec.cpu_places`).
        loss_name: name of the loss, when the program trains.
        main_program: None takes the default main program.
        share_vars_from: an executor whose parameters are used: train with one, test with the other.
        exec_strategy: how to run the plan.
        build_strategy: how to build the graph.
        num_trainers: number of trainer processes.
        trainer_id: number of this one.
        scope: where variables live; None takes the global scope.

    Raises:
        AssertionError: no GPU, share_vars_from of another type, or the loss name is missing.

    See Also:
        :class:`~dpexec.Executor`: runs programs.
        :class:`~dpexec.CompiledProgram`: a program on several devices.
        :class:`~dpexec.BuildStrategy`: how the graph is built.
        :class:`~dpexec.ExecutionStrategy`: how it runs.

    Example:
        >>> import dpexec as fluid, numpy as np, os
        >>> os.environ["CPU_NUM"] = "2"
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup), fluid.scope_guard(fluid.Scope()):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 2]), size=1))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        ...     _ = fluid.Executor(fluid.CPUPlace()).run(startup)
        ...     both = fluid.ParallelExecutor(use_cuda=False, loss_name=loss.name)
        ...     feed = {"x": np.ones((4, 2), "float32")}
        ...     both.run([loss.name], feed=feed)[0].shape  # the loss of each device
        (2,)
    """

    def __init__(
        self,
        use_cuda: bool,
        loss_name: str | None = None,
        main_program: Program | None = None,
        share_vars_from: ParallelExecutor | None = None,
        exec_strategy: ExecutionStrategy | None = None,
        build_strategy: BuildStrategy | None = None,
        num_trainers: int = 1,
        trainer_id: int = 0,
        scope: Scope | None = None,
    ) -> None:
        if use_cuda and not is_compiled_with_cuda():
            raise AssertionError(
                f"Not compiled with CUDA: use_cuda=True needs a GPU. {why_no_gpu()}"
            )
        if share_vars_from is not None and not isinstance(share_vars_from, ParallelExecutor):
            raise AssertionError(
                f"share_vars_from takes a ParallelExecutor, but received {type(share_vars_from)}"
            )
        check_strategies(build_strategy, exec_strategy)
        build_strategy = BuildStrategy() if build_strategy is None else build_strategy
        if num_trainers != 1 or trainer_id != 0:
            build_strategy.num_trainers = num_trainers
            build_strategy.trainer_id = trainer_id
        execution = ExecutionStrategy() if exec_strategy is None else exec_strategy
        scheduler = scheduler_in_force(execution.scheduler)
        places = cuda_places_on(scheduler) if use_cuda else cpu_places_on(scheduler)
        self._devices = len(places)
        self._scope: Scope = global_scope() if scope is None else scope
        shared: CompiledProgram | None = None
        if share_vars_from is not None:
            sys.stderr.write("share_vars_from is set, scope is ignored.\n")
            shared, self._scope = share_vars_from._compiled_program, share_vars_from._scope
        program = default_main_program() if main_program is None else main_program
        self._compiled_program: CompiledProgram = CompiledProgram(program).with_data_parallel(
            loss_name=loss_name,
            build_strategy=build_strategy,
            exec_strategy=execution,
            share_vars_from=shared,
            places=places,
        )
        self._executor = Executor(CUDAPlace(0) if use_cuda else CPUPlace())

    def run(
        self,
        fetch_list: Any,
        feed: Any = None,
        feed_dict: Any = None,
        return_numpy: bool = True,
    ) -> list[Any]:
        """Run one step on all devices.

        Args:
            fetch_list: Variables or names to return.
            feed: a dict, split over the devices along the first axis, or a list with a dict each.
            feed_dict: the older name of ``feed``.
            return_numpy: True returns arrays, False returns LoDTensors.

        Returns:
            Per name the devices' values, concatenated along axis 0: a scalar loss on N devices
            comes as N values.

        Raises:
            ValueError: both ``feed`` and ``feed_dict``, an unknown name, or a wrong shape or type.
            TypeError: a feed that is neither dict nor list of dicts.
            EnforceNotMet: an operator cannot work on its inputs; no variable has changed.
        """
        if feed is not None and feed_dict is not None:
            raise ValueError("give feed or feed_dict, not both")
        return self._executor.run(
            self._compiled_program,
            feed=feed_dict if feed is None else feed,
            fetch_list=fetch_list,
            scope=self._scope,
            return_numpy=return_numpy,
        )

    def delayed(self, fetch_list: Any, feed: Any = None, **options: Any) -> Delayed:
        """A run, or several, as a node of a dask graph: see :meth:`Executor.delayed`.

        Args:
            fetch_list: see :meth:`run`.
            feed: see :meth:`run`.
            options: ``feeds`` for several runs, ``return_numpy``.

        Returns:
            As many delayed values as there are fetches.
        """
        how = {"scope": self._scope, **options}
        return self._executor.delayed(self._compiled_program, feed, fetch_list, **how)

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return self._devices

    def __repr__(self) -> str:
        return f"<ParallelExecutor of {self._compiled_program!r}>"

    def drop_local_exe_scopes(self) -> None:
        """Free the temporaries of earlier runs.

        Raises:
            TypeError: nothing ran yet.
        """
        self._ran().drop_local_scopes()

    def _need_create_local_exe_scopes(self) -> bool:
        return self._ran().needs_local_scopes

    def _ran(self) -> Any:
        engine = self._compiled_program._engine
        if engine is None:
            raise TypeError("ParallelExecutor has no local scopes before its first run")
        return engine

    @property
    def graph(self) -> SSAGraph:
        """The SSA graph, after the first run."""
        return self._compiled_program.graph

    @property
    def plan(self) -> Plan | None:
        """The plan of the latest run."""
        return self._compiled_program.plan

    @property
    def trace(self) -> Trace:
        """The trace of recorded steps; needs ``ExecutionStrategy.trace``."""
        return self._compiled_program.trace
