"""``fleet`` with parameter servers: programs are divided by ``DistributeTranspiler``."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from dpexec.communicator import Communicator
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.scope import Scope, global_scope, scope_guard
from dpexec.engine.executors.executor import Executor
from dpexec.engine.ir.program import Program, default_startup_program
from dpexec.engine.ir.variable import Variable
from dpexec.engine.parameter_server.remote import remote_of
from dpexec.incubate.fleet.base.fleet_base import DistributedOptimizer, Fleet, Mode
from dpexec.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import (
    AsyncStrategy,
    DistributedStrategy,
    GeoStrategy,
    HalfAsyncStrategy,
    StrategyFactory,
    SyncStrategy,
)
from dpexec.io.checkpoint import load_program_state
from dpexec.io.selection import is_persistable
from dpexec.io.variables import save_vars
from dpexec.optimizer.base import Optimizer
from dpexec.transpiler import DistributeTranspiler, DistributeTranspilerConfig

__all__ = [
    "AsyncStrategy",
    "DistributedStrategy",
    "DistributedTranspiler",
    "GeoStrategy",
    "HalfAsyncStrategy",
    "StrategyFactory",
    "SyncStrategy",
    "TranspilerOptimizer",
    "fleet",
]


class DistributedTranspiler(Fleet):
    """Trainers and parameter servers; what this process runs depends on its role.

    Example:
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedRoleMaker
        >>> from dpexec.incubate.fleet.parameter_server import distribute_transpiler
        >>> fleet = distribute_transpiler.DistributedTranspiler()
        >>> fleet.init(UserDefinedRoleMaker(0, worker_num=2, server_endpoints=["127.0.0.1:6174"]))
        >>> fleet.is_worker(), fleet.server_num(), fleet.server_endpoints()
        (True, 1, ['127.0.0.1:6174'])
    """

    def __init__(self) -> None:
        super().__init__(Mode.TRANSPILER)
        self.main_program: Program | None = None
        self.startup_program: Program | None = None
        self._origin_program: Program | None = None
        self._transpiler: DistributeTranspiler | None = None
        self._communicator: Communicator | None = None

    # ---- trainers

    def init_worker(self) -> None:
        """Connect to the servers.

        Raises:
            RuntimeError: a server did not answer within ``FLAGS_rpc_deadline``.
            ValueError: ``minimize`` was not called.
        """
        if self._communicator is not None and self._communicator.is_running():
            warnings.warn("communicator has been initialized, skip", stacklevel=2)
            return
        self._communicator = Communicator(_made(self.main_program, "main_program"))
        self._communicator.start()

    def stop_worker(self) -> None:
        """Tell the servers that this trainer is done; its programs cannot be run any more.

        Raises:
            ValueError: ``minimize`` was not called.
        """
        remote = remote_of(_made(self.main_program, "main_program"))
        assert remote is not None
        if self._communicator is not None:
            self._communicator.stop()
        remote.servers.complete()
        self._executor.close()

    # ---- servers

    def init_server(self, model_dir: str | None = None) -> None:
        """Initialise the parameters of this server.

        Args:
            model_dir: directory written by a trainer's ``save_persistables``; the state of
                optimizers starts anew.

        Raises:
            EnforceNotMet: a parameter is missing in the directory.
            ValueError: there is no such directory, or ``minimize`` was not called.
        """
        self._executor.run(_made(self.startup_program, "startup_program"))
        if model_dir:
            if not os.path.isdir(model_dir):
                raise ValueError(f"There is no directory named {model_dir!r}")
            self._load(model_dir)

    def _load(self, model_dir: str) -> None:
        """Load the blocks of parameters that are on this server."""
        assert self._transpiler is not None
        shards = self._transpiler.shards_at(self._endpoint)
        block = _made(self._origin_program, "main_program").global_block()
        whole = load_program_state(model_dir, [block.var(name) for name in shards])
        for name, shard in shards.items():
            rows = whole[name][shard.begin : shard.begin + shard.shape[0]]
            tensor = global_scope().var(shard.param).get_tensor()
            tensor.set(rows, self._executor.place)

    def run_server(self) -> None:
        """Serve until all trainers are done.

        Raises:
            RuntimeError: a trainer has ended unexpectedly, or does not answer.
            ValueError: ``minimize`` was not called.
        """
        self._executor.run(_made(self.main_program, "main_program"))

    # ---- both

    def distributed_optimizer(
        self,
        optimizer: Any,
        strategy: DistributeTranspilerConfig | DistributedStrategy | None = None,
    ) -> TranspilerOptimizer:
        """An optimizer whose ``minimize`` divides the program, too.

        Args:
            optimizer: updates the parameters, on the servers.
            strategy: determines what servers wait for; None waits for the gradients of all
                trainers.

        Raises:
            TypeError: ``strategy`` is no strategy.
            ValueError: ``optimizer`` is no optimizer, or ``init`` was not called.
        """
        if not isinstance(optimizer, Optimizer):
            raise ValueError(f"optimizer must be an instance of Optimizer, not {optimizer!r}")
        if not self._is_initialized:
            raise ValueError("call fleet.init(role_maker) before fleet.distributed_optimizer")
        return TranspilerOptimizer(optimizer, strategy)

    def _transpile(self, strategy: DistributedStrategy, main: Program, startup: Program) -> None:
        """Create the programs of this process."""
        self._origin_program = main.clone()
        config = strategy.get_program_config()
        self._transpiler = DistributeTranspiler(config)
        self._transpiler.transpile(
            trainer_id=self.worker_index(),
            program=main,
            pservers=",".join(self.server_endpoints()),
            trainers=self.worker_num(),
            sync_mode=config.sync_mode,
            startup_program=startup,
        )
        if self.is_worker():
            self.main_program = self._transpiler.get_trainer_program()
            self.startup_program = startup
        else:
            programs = self._transpiler.get_pserver_programs(self._endpoint)
            self.main_program, self.startup_program = programs

    @property
    def _endpoint(self) -> str:
        """The endpoint of this server."""
        return self._role_maker.get_pserver_endpoints()[self.server_index()]

    @contextlib.contextmanager
    def _predicting(self, executor: Any, given: Any) -> Iterator[Program]:
        _check(executor, given)
        program = given or _made(self._origin_program, "main_program")
        with _tables_here(self.main_program):
            yield program

    def save_persistables(
        self, executor: Executor, dirname: str, main_program: Program | None = None
    ) -> None:
        """Save the parameters; ``init_server`` loads them.

        Parameters come from this trainer, tables with ``is_distributed=True`` from the servers.

        Args:
            executor: ignored; accepted for compatibility.
            dirname: directory to write to.
            main_program: None takes the one of this process.

        Raises:
            TypeError: executor or program has the wrong type.
            ValueError: the program was not divided.
        """
        _check(executor, main_program)
        program = main_program or _made(self.main_program, "main_program")
        if remote_of(program) is None:
            raise ValueError("main_program is for local, may not use fleet.save_persistables")
        with _tables_here(program) as tables:
            chosen = [v for v in program.list_vars() if is_persistable(v) or v.name in tables]
            save_vars(executor, dirname, program, chosen)


@contextlib.contextmanager
def _tables_here(program: Program | None) -> Iterator[Iterable[str]]:
    """Temporarily fetch the tables that are only on servers, to save them."""
    remote = None if program is None else remote_of(program)
    values = {} if remote is None else remote.table_values()
    scope = Scope(global_scope())
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, CPUPlace())
    with scope_guard(scope):
        yield values.keys()


def _made(program: Program | None, name: str) -> Program:
    if program is None:
        raise ValueError(
            f"{name} is None: call minimize of the optimizer that fleet.distributed_optimizer "
            "gave, before this"
        )
    return program


def _check(executor: Any, program: Any) -> None:
    if not isinstance(executor, Executor):
        raise TypeError(f"executor must be an Executor, but received {executor!r}")
    if program is not None and not isinstance(program, Program):
        raise TypeError(f"main_program must be a Program, but received {program!r}")


fleet = DistributedTranspiler()


class TranspilerOptimizer(DistributedOptimizer):
    """An optimizer whose ``minimize`` divides the program between trainers and servers.

    Args:
        optimizer: updates the parameters, on the servers.
        strategy: determines what servers wait for; None waits for the gradients of all trainers.

    Raises:
        TypeError: an argument has the wrong type.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.incubate.fleet.base.role_maker import UserDefinedRoleMaker
        >>> from dpexec.incubate.fleet.parameter_server.distribute_transpiler import fleet
        >>> fleet.init(UserDefinedRoleMaker(0, worker_num=2, server_endpoints=["127.0.0.1:6174"]))
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fleet.distributed_optimizer(fluid.optimizer.SGD(0.1)).minimize(loss)
        >>> [op.type for op in fleet.main_program.global_block().ops][-3:]  # servers update
        ['send_barrier', 'recv', 'recv']
    """

    def __init__(
        self,
        optimizer: Any,
        strategy: DistributeTranspilerConfig | DistributedStrategy | None = None,
    ) -> None:
        super().__init__(optimizer, _strategy_of(strategy))

    def minimize(
        self,
        loss: Variable,
        scopes: None = None,
        startup_program: Program | None = None,
        parameter_list: Iterable[Any] | None = None,
        no_grad_set: Iterable[Any] | None = None,
    ) -> Any:
        """Append backward pass and updates, and create the programs of this process.

        Args:
            loss: the loss to minimize.
            scopes: ignored; accepted for compatibility.
            startup_program: None takes the default startup program.
            parameter_list: parameters to update; None for all trainable ones.
            no_grad_set: variables at which gradients stop.

        Returns:
            The operators that update, and pairs of parameter and gradient.

        Raises:
            TypeError: there are several losses or startup programs.
        """
        for name, given in (("loss", loss), ("startup_program", startup_program)):
            if isinstance(given, list):
                raise TypeError(f"minimize takes one {name}, not a list")
        done = self._optimizer.minimize(loss, startup_program, parameter_list, no_grad_set)
        startup = startup_program or default_startup_program()
        fleet._transpile(self._strategy, loss.block.program, startup)
        return done


def _strategy_of(given: Any) -> DistributedStrategy:
    """The strategy for a configuration of the transpiler."""
    if given is None:
        return SyncStrategy()
    if isinstance(given, DistributedStrategy):
        return given
    if not isinstance(given, DistributeTranspilerConfig):
        raise TypeError(
            "strategy must be a DistributeTranspilerConfig, SyncStrategy, HalfAsyncStrategy, "
            f"AsyncStrategy or GeoStrategy, but received {given!r}"
        )
    made: DistributedStrategy
    if given.geo_sgd_mode:
        made = GeoStrategy(given.geo_sgd_need_push_nums)
    elif given.sync_mode or given.completely_not_async:
        made = SyncStrategy()
    elif given.runtime_split_send_recv and not given.half_async:
        made = AsyncStrategy()
    else:
        made = HalfAsyncStrategy()
    made.set_program_config(given)
    return made
