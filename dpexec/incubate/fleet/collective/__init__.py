"""``fleet`` without servers: trainers exchange gradients directly."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable
from typing import Any

from dpexec.contrib.mixed_precision.decorator import OptimizerWithMixedPrecision, decorate
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.executors.compiled_program import CompiledProgram
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.program import Program, default_startup_program
from dpexec.engine.ir.variable import Variable
from dpexec.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode
from dpexec.incubate.fleet.collective.strategy import DistributedStrategy
from dpexec.io.variables import save_persistables
from dpexec.optimizer.adam import LambOptimizer
from dpexec.optimizer.dgc import DGCMomentumOptimizer
from dpexec.optimizer.recompute import RecomputeOptimizer
from dpexec.transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = ["Collective", "CollectiveOptimizer", "DistributedStrategy", "fleet"]


class Collective(Fleet):
    """Trainers without servers.

    To go on after an interruption use :class:`dpexec.checkpoint.Checkpoints`; fluid's
    ``save_check_point`` and ``load_check_point`` are not supported.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
        >>> from dpexec.incubate.fleet.collective import Collective
        >>> fleet = Collective()  # scripts use the one of the module: from ... import fleet
        >>> fleet.init(UserDefinedCollectiveRoleMaker(1, ["10.0.0.1:6170", "10.0.0.2:6170"]))
        >>> fleet.worker_num(), fleet.worker_index(), fleet.is_first_worker()
        (2, 1, False)
    """

    def __init__(self) -> None:
        super().__init__(Mode.COLLECTIVE)
        self.main_program: CompiledProgram | Program | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None

    def init_worker(self) -> None:
        """Do nothing: trainers connect at their first step."""
        _warn("init_worker")

    def init_server(self, model_dir: str | None = None) -> None:
        """Do nothing: there are no servers."""
        _warn("init_server")

    def run_server(self) -> None:
        """Do nothing: there are no servers."""
        _warn("run_server")

    def stop_worker(self) -> None:
        """Do nothing: trainers disconnect when they end."""
        _warn("stop_worker")

    def distributed_optimizer(
        self, optimizer: Any, strategy: DistributedStrategy | None = None
    ) -> CollectiveOptimizer:
        """An optimizer whose ``minimize`` compiles the program for all trainers, too.

        Args:
            optimizer: updates the parameters.
            strategy: options; None takes the defaults.

        Raises:
            TypeError: ``optimizer`` is none.
        """
        return CollectiveOptimizer(optimizer, strategy)

    def _predicting(self, executor: Any, given: Any) -> contextlib.nullcontext[Program]:
        return contextlib.nullcontext(self._program_to_save(executor, given))

    def save_persistables(
        self,
        executor: Executor,
        dirname: str,
        main_program: Program | None = None,
        filename: str | None = None,
    ) -> None:
        """Save all persistable variables; those of all trainers are equal.

        Args:
            executor: ignored; accepted for compatibility.
            dirname: directory to write to.
            main_program: None takes the one that was minimized.
            filename: one file for all; None: a file for each.

        Raises:
            AssertionError: executor or program are of another type.
        """
        program = self._program_to_save(executor, main_program)
        save_persistables(executor, dirname, program, filename=filename)

    def _program_to_save(self, executor: Any, given: Any) -> Program:
        program = self._origin_program if given is None else given
        if not isinstance(executor, Executor):
            raise AssertionError(f"executor must be an Executor, not {executor!r}")
        if not isinstance(program, Program):
            raise AssertionError(f"main_program must be a Program, not {program!r}")
        return program


def _warn(method: str) -> None:
    warnings.warn(f"fleet.{method} does nothing without parameter servers", stacklevel=3)


fleet = Collective()


class CollectiveOptimizer(DistributedOptimizer):
    """An optimizer whose ``minimize`` compiles the program for all trainers, too.

    Args:
        optimizer: updates the parameters.
        strategy: options; None takes the defaults.

    Raises:
        TypeError: ``optimizer`` is none.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedCollectiveRoleMaker
        >>> from dpexec.incubate.fleet.collective import fleet
        >>> fleet.init(UserDefinedCollectiveRoleMaker(0, ["127.0.0.1:6170"]))
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
        >>> type(fleet.main_program).__name__  # what Executor.run takes
        'CompiledProgram'
    """

    def __init__(self, optimizer: Any, strategy: DistributedStrategy | None = None) -> None:
        super().__init__(optimizer, strategy or DistributedStrategy())

    def minimize(
        self,
        loss: Variable,
        startup_program: Program | None = None,
        parameter_list: Iterable[Any] | None = None,
        no_grad_set: Iterable[Any] | None = None,
    ) -> Any:
        """Append backward pass and updates, and set the programs of ``fleet``.

        Args:
            loss: the loss to minimize.
            startup_program: None takes the default startup program.
            parameter_list: parameters to update; None for all trainable ones.
            no_grad_set: variables at which gradients stop.

        Returns:
            The operators that update, and pairs of parameter and gradient.

        Raises:
            EnforceNotMet: the strategy has unsupported options.
            ValueError: the strategy and the optimizer are incompatible.
        """
        main, startup = loss.block.program, startup_program or default_startup_program()
        optimizer = self._with_mixed_precision(self._with_recompute(self._optimizer))
        self._choose_mode()
        done = optimizer.minimize(loss, startup, parameter_list, no_grad_set)
        fleet.startup_program = startup
        fleet._origin_program = main.clone()
        self._transpile(main, startup)
        fleet.main_program = main if self._strategy.mode == "collective" else self._compiled(loss)
        return done

    def _with_recompute(self, optimizer: Any) -> Any:
        if not self._strategy.forward_recompute:
            return optimizer
        if not self._strategy.recompute_checkpoints:
            raise ValueError("forward_recompute needs recompute_checkpoints of the strategy")
        _refuse("forward_recompute", optimizer, RecomputeOptimizer, OptimizerWithMixedPrecision)
        made = RecomputeOptimizer(optimizer)
        made._set_checkpoints(self._strategy.recompute_checkpoints)
        return made

    def _with_mixed_precision(self, optimizer: Any) -> Any:
        if not self._strategy.use_amp:
            return optimizer
        _refuse("use_amp", optimizer, OptimizerWithMixedPrecision, DGCMomentumOptimizer)
        scaling = self._strategy.amp_loss_scaling
        return decorate(optimizer, init_loss_scaling=scaling, use_dynamic_loss_scaling=True)

    def _choose_mode(self) -> None:
        strategy = self._strategy
        if strategy.use_dist_fc:
            raise EnforceNotMet(
                "DistributedStrategy.use_dist_fc is not supported; there are mode 'nccl2', and "
                "mode 'collective' with collective_mode 'grad_allreduce' or 'local_sgd'"
            )
        if strategy.use_local_sgd:
            _refuse("use_local_sgd", self._optimizer, DGCMomentumOptimizer, LambOptimizer)
            strategy.mode, strategy.collective_mode = "collective", "local_sgd"
        if strategy.collective_mode is not None and strategy.mode != "collective":
            raise AssertionError(
                f"collective_mode {strategy.collective_mode!r} needs mode = 'collective'"
            )

    def _transpile(self, main: Program, startup: Program) -> None:
        """Prepare the program for training by several trainers."""
        config = DistributeTranspilerConfig()
        config.mode, config.collective_mode = self._strategy.mode, self._strategy.collective_mode
        endpoints = fleet._role_maker.get_trainer_endpoints()
        DistributeTranspiler(config).transpile(
            trainer_id=fleet.worker_index(),
            program=main,
            trainers=",".join(endpoints),
            startup_program=startup,
            current_endpoint=endpoints[fleet.worker_index()],
        )

    def _compiled(self, loss: Variable) -> CompiledProgram:
        strategy = self._strategy
        strategy.num_trainers, strategy.trainer_id = fleet.worker_num(), fleet.worker_index()
        strategy.trainers_endpoints = fleet._role_maker.get_trainer_endpoints()
        return CompiledProgram(loss.block.program).with_data_parallel(
            loss.name, strategy, strategy.exec_strategy
        )


def _refuse(field: str, optimizer: Any, *kinds: type) -> None:
    if isinstance(optimizer, kinds):
        raise ValueError(
            f"can not use {type(optimizer).__name__} when DistributedStrategy.{field} is True"
        )
