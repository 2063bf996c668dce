"""``DistributeTranspiler``: divides a program between trainers and parameter servers."""

from __future__ import annotations

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir.program import Program, default_main_program, default_startup_program
from dpexec.transpiler.collective import transpile_collective
from dpexec.transpiler.config import DistributedMode, DistributeTranspilerConfig
from dpexec.transpiler.server_program import ServerSource, server_program, server_startup
from dpexec.transpiler.shards import Shard, split_parameters
from dpexec.transpiler.tables import distributed_tables, fetch_rows
from dpexec.transpiler.trainer_program import (
    Trainer,
    add_exchange,
    add_geo_exchange,
    add_reception,
    remove_updates,
)
from dpexec.transpiler.updates import Updates

__all__ = ["DistributeTranspiler", "DistributeTranspilerConfig", "DistributedMode"]

_MIN_BLOCK = 8192


class DistributeTranspiler:
    """Divides a program between trainers, which compute gradients, and parameter servers.

    Every process builds the same program, transpiles it, and runs the part for its role.

    Args:
        config: options; None takes the defaults.

    Raises:
        AssertionError: ``config.min_block_size`` is less than 8192.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.layers.data("x", [13])
        ...     loss = fluid.layers.mean(fluid.layers.fc(x, 1))
        ...     _ = fluid.optimizer.SGD(0.01).minimize(loss)
        ...     transpiler = fluid.DistributeTranspiler()
        ...     transpiler.transpile(0, pservers="127.0.0.1:6174", trainers=2)
        >>> server, startup = transpiler.get_pserver_programs("127.0.0.1:6174")
        >>> [op.type for op in server.global_block().ops]
        ['listen_and_serv']
    """

    def __init__(self, config: DistributeTranspilerConfig | None = None) -> None:
        self.config = DistributeTranspilerConfig() if config is None else config
        if self.config.min_block_size < _MIN_BLOCK:
            raise AssertionError(
                f"min_block_size must be at least {_MIN_BLOCK}, not {self.config.min_block_size}"
            )
        self._source: ServerSource | None = None
        self._done_by_servers: Updates | None = None

    def transpile(
        self,
        trainer_id: int,
        program: Program | None = None,
        pservers: str = "127.0.0.1:6174",
        trainers: int | str = 1,
        sync_mode: bool = True,
        startup_program: Program | None = None,
        current_endpoint: str = "127.0.0.1:6174",
    ) -> None:
        """Divide a program. The program and its startup program become those of the trainer.

        Args:
            trainer_id: number of this trainer.
            program: program with an optimizer; None takes the default main program.
            pservers: endpoints of the servers, ``"ip:port,ip:port"``.
            trainers: number of trainers; in the modes ``"nccl2"`` and ``"collective"`` their
                endpoints.
            sync_mode: servers wait for the gradients of all trainers, and use their mean; False
                applies each trainer's gradients on arrival. Combined with the configuration's
                field.
            startup_program: None takes the default startup program.
            current_endpoint: endpoint of this trainer in the modes ``"nccl2"`` and
                ``"collective"``.

        Raises:
            EnforceNotMet: the program has no optimizer, or uses unsupported features.
        """
        program = default_main_program() if program is None else program
        startup = default_startup_program() if startup_program is None else startup_program
        if self.config.mode != "pserver":
            if isinstance(trainers, int):
                raise AssertionError(f"trainers are endpoints, not {trainers!r}")
            transpile_collective(
                self.config, program, startup, trainer_id, trainers, current_endpoint
            )
            return
        if not isinstance(trainers, int):
            raise AssertionError(f"trainers is a number, but received {trainers!r}")
        if not sync_mode:
            self.config.sync_mode = False
        self.config.check()
        self._source = self._divide(program, startup, pservers, trainers)
        self._make_trainer(program, startup, trainer_id)

    def _divide(
        self, program: Program, startup: Program, pservers: str, trainers: int
    ) -> ServerSource:
        """Assign blocks to servers; the programs stay unchanged."""
        endpoints = [item.strip() for item in pservers.split(",")]
        original, first = program.clone(), startup.clone()
        updates = Updates(original)
        if self.config.enable_dc_asgd:
            _refuse_sparse_gradients(original, updates)
        tables = distributed_tables(original, self.config)
        splits = split_parameters(original, updates, self.config, endpoints, tables)
        if self.config.geo_sgd_mode:
            splits = [split.with_deltas() for split in splits]
        return ServerSource(
            original, first, updates, splits, endpoints, trainers, self.config, tables
        )

    def _make_trainer(self, program: Program, startup: Program, number: int) -> None:
        """Insert the exchange with the servers into the programs."""
        source = self._transpiled()
        config, tables = self.config, source.tables
        trainer = Trainer(number, source.trainers, source.endpoints, config, tables)
        order = list(source.updates.pairs)
        in_order = sorted(source.splits, key=lambda split: order.index(split.param))
        self._program, self._startup = program, startup
        if config.geo_sgd_mode:
            add_geo_exchange(program, in_order, trainer)
        else:
            self._done_by_servers = Updates(program)
            add_exchange(program, source.splits, trainer)
        add_reception(startup, in_order, trainer)
        fetch_rows(program, startup, [s for s in in_order if s.param in tables], number)

    def get_trainer_program(self, wait_port: bool = True) -> Program:
        """The trainer's program: the transpiled program without the servers' operators.

        Args:
            wait_port: ignored; the first run waits for the servers.

        Raises:
            EnforceNotMet: :meth:`transpile` was not called.
        """
        self._transpiled()
        if self._done_by_servers is not None:
            remove_updates(self._program, self._startup, self._done_by_servers)
            self._done_by_servers = None
        return self._program

    def get_pserver_program(self, endpoint: str) -> Program:
        """The program of a server; its ``Executor.run`` ends when all trainers are done.

        Args:
            endpoint: endpoint of the server.

        Raises:
            EnforceNotMet: :meth:`transpile` was not called, or there is no such server.
        """
        return server_program(self._transpiled(), endpoint)

    def get_pserver_programs(self, endpoint: str) -> tuple[Program, Program]:
        """The program of a server, and its startup program.

        Args:
            endpoint: endpoint of the server.

        Raises:
            EnforceNotMet: :meth:`transpile` was not called, or there is no such server.
        """
        program = self.get_pserver_program(endpoint)
        return program, self.get_startup_program(endpoint, program)

    def get_startup_program(
        self,
        endpoint: str,
        pserver_program: Program | None = None,
        startup_program: Program | None = None,
    ) -> Program:
        """The startup program of a server.

        Args:
            endpoint: endpoint of the server.
            pserver_program: the result of ``get_pserver_program``; None builds it again.
            startup_program: ignored; pass it to ``transpile`` instead.

        Raises:
            EnforceNotMet: :meth:`transpile` was not called, or there is no such server.
        """
        program = pserver_program or self.get_pserver_program(endpoint)
        return server_startup(self._transpiled(), endpoint, program)

    def shards_at(self, endpoint: str) -> dict[str, Shard]:
        """The rows of parameters on a server (specific to dpexec).

        Args:
            endpoint: endpoint of the server.

        Raises:
            EnforceNotMet: :meth:`transpile` was not called, or there is no such server.
        """
        return self._transpiled().shards_at(endpoint)

    def _transpiled(self) -> ServerSource:
        if self._source is None:
            raise EnforceNotMet("call transpile, in the mode 'pserver', before this")
        return self._source


def _refuse_sparse_gradients(program: Program, updates: Updates) -> None:
    block = program.global_block()
    for param, grad in updates.pairs.items():
        if block.var(grad).type == VarType.SELECTED_ROWS:
            raise EnforceNotMet(
                f"DistributeTranspilerConfig.enable_dc_asgd is for dense gradients, and that of "
                f"{param} is sparse: use is_sparse=False, or leave enable_dc_asgd False"
            )
