"""Trainers that exchange gradients without servers: the modes ``"nccl2"`` and ``"collective"``.

`GradAllReduce` and `LocalSGD` insert the exchange into programs, as operators.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.core import unique_name
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program, default_main_program, default_startup_program
from dpexec.engine.ir.variable import Parameter, Variable
from dpexec.transpiler.config import DistributeTranspilerConfig

__all__ = ["GradAllReduce", "LocalSGD", "transpile_collective"]


def transpile_collective(
    config: DistributeTranspilerConfig,
    program: Program,
    startup: Program,
    trainer_id: int,
    trainers: str | Sequence[str],
    current_endpoint: str,
) -> None:
    """Prepare a program for training by several trainers.

    In mode ``"nccl2"`` a ParallelExecutor or CompiledProgram with the same number of trainers runs
    it; in mode ``"collective"`` ``Executor.run`` does, on one device of each trainer. Trainers
    connect at the first step; the startup program is changed for `LocalSGD` only.

    Args:
        config: configuration with the mode.
        program: the program to train.
        startup: its startup program.
        trainer_id: number of this trainer.
        trainers: endpoints of all trainers, ``"ip:port,ip:port"``.
        current_endpoint: endpoint of this trainer.

    Raises:
        EnforceNotMet: the mode is not supported.
        ValueError: this trainer's number and endpoint are inconsistent with the endpoints.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler.collective import transpile_collective
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> config = fluid.DistributeTranspilerConfig()
        >>> config.mode, config.collective_mode = "collective", "local_sgd"
        >>> transpile_collective(config, main, startup, 0, "a:6170,b:6170", "a:6170")
        >>> sorted({op.type for op in startup.global_block().ops if op.type.startswith("c_")})
        ['c_broadcast', 'c_comm_init', 'c_gen_nccl_id', 'c_sync_comm_stream']
    """
    endpoints = trainers.split(",") if isinstance(trainers, str) else list(trainers)
    endpoints = [endpoint.strip() for endpoint in endpoints]
    if not 0 <= trainer_id < len(endpoints) or endpoints[trainer_id] != current_endpoint:
        raise ValueError(
            f"current_endpoint {current_endpoint!r} must be number {trainer_id} (trainer_id) of "
            f"the trainers {', '.join(endpoints)}"
        )
    _check_mode(config, len(endpoints))
    if config.collective_mode == "local_sgd":
        LocalSGD(config.nccl_comm_num).transpile(
            startup, program, trainer_id, endpoints, current_endpoint, config.wait_port
        )
        return
    if config.mode == "collective":
        program._trainer_id = trainer_id
    program._trainers_endpoints = endpoints


def _check_mode(config: DistributeTranspilerConfig, trainers: int) -> None:
    if config.mode == "collective":
        if trainers == 1:
            raise ValueError("invalid trainer number in distributed: 1")
        if config.collective_mode not in ("grad_allreduce", "local_sgd"):
            raise EnforceNotMet(
                f"DistributeTranspilerConfig.collective_mode {config.collective_mode!r} is not "
                "supported; there are 'grad_allreduce' and 'local_sgd'"
            )
    elif config.mode != "nccl2":
        raise EnforceNotMet(
            f"DistributeTranspilerConfig.mode {config.mode!r} is not supported; there are "
            "'pserver', 'nccl2' and 'collective'"
        )


class Collective:
    """Base class: inserts the exchange with other trainers into a trainer's programs.

    Args:
        nrings: number of rings, which values use in turn.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler.collective import Collective
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     _ = fluid.layers.fc(fluid.data("x", [None, 4]), 1)
        >>> class Alike(Collective):
        ...     "All trainers begin with the parameters of trainer 0, and then go their own ways."
        ...     def _transpile_main_program(self):
        ...         pass
        >>> Alike(nrings=1).transpile(startup, main, 0, "a:6170,b:6170", "a:6170", False)
        >>> [op.type for op in startup.global_block().ops].count("c_broadcast")
        2
    """

    def __init__(self, nrings: int) -> None:
        self.nrings = nrings
        self._last_ring = -1

    def transpile(
        self,
        startup_program: Program | None,
        main_program: Program | None,
        rank: int,
        endpoints: str | Sequence[str],
        current_endpoint: str,
        wait_port: bool,
    ) -> None:
        """Change the programs of this trainer; ``Executor.run`` runs them, on one device.

        Args:
            startup_program: None takes the default startup program.
            main_program: with an optimizer; None takes the default main program.
            rank: number of this trainer.
            endpoints: endpoints of all trainers, ``"ip:port,ip:port"``.
            current_endpoint: endpoint of this trainer.
            wait_port: ignored; trainers always wait for each other.

        Raises:
            ValueError: there is only one trainer, or its number and endpoint are inconsistent.
        """
        listed = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
        if len(listed) < 2:
            raise ValueError("the number of endpoints must > 1")
        if rank not in range(len(listed)) or listed[rank] != current_endpoint:
            raise ValueError(f"endpoint {current_endpoint} is not number {rank} of {listed}")
        self.startup_program = startup_program or default_startup_program()
        self.main_program = main_program or default_main_program()
        self.rank, self.endpoints, self.nranks = rank, listed, len(listed)
        self.current_endpoint = current_endpoint
        self._last_ring = -1
        self._transpile_startup_program()
        self._last_ring = -1
        self._transpile_main_program()

    def _transpile_startup_program(self) -> None:
        """Set up the rings, and broadcast the parameters of trainer 0."""
        block = self.startup_program.global_block()
        for ring in range(self.nrings):
            self._set_up(block, ring)
        params = [param for param in block.iter_parameters() if not param.is_distributed]
        for param in params:
            _on(block, "c_broadcast", param, ring_id=self._next_ring(), root=0)
        self._wait(block, len(block.ops), params[-1] if params else None, roles.FORWARD)

    def _set_up(self, block: Block, ring: int) -> None:
        others = [e for number, e in enumerate(self.endpoints) if number != self.rank]
        name = unique_name.generate("nccl_id")
        made = block.create_var(name=name, persistable=True, type=VarType.RAW)
        where = {"endpoint": self.current_endpoint, "other_endpoints": others}
        here = {"rank": self.rank, roles.ROLE: roles.FORWARD}
        block.append_op("c_gen_nccl_id", {}, {"Out": [made]}, {**where, **here})
        block.append_op(
            "c_comm_init", {"X": [made]}, {}, {"nranks": self.nranks, "ring_id": ring, **here}
        )

    def _transpile_main_program(self) -> None:
        raise NotImplementedError("GradAllReduce and LocalSGD say what is exchanged")

    def _next_ring(self) -> int:
        self._last_ring = (self._last_ring + 1) % self.nrings
        return self._last_ring

    def _wait(self, block: Block, index: int, var: Variable | None, role: int) -> None:
        """Wait for the transfers of all rings."""
        for ring in range(self.nrings if var is not None else 0):
            assert var is not None
            _on(block, "c_sync_comm_stream", var, index + ring, role, ring_id=ring)


def _on(
    block: Block,
    type: str,
    var: Variable,
    index: int | None = None,
    role: int = roles.FORWARD,
    **attrs: object,
) -> None:
    """Add an operator that overwrites a variable."""
    at = len(block.ops) if index is None else index
    block._insert_op(at, type, {"X": [var]}, {"Out": [var]}, {roles.ROLE: role, **attrs})


class GradAllReduce(Collective):
    """Sums gradients over the trainers before parameters are updated.

    All trainers' losses have the same weight: feed each the same number of samples.

    Args:
        nrings: number of rings, which gradients use in turn.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler.collective import GradAllReduce
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> GradAllReduce().transpile(startup, main, 0, "a:6170,b:6170", "a:6170", False)
        >>> [op.type for op in main.global_block().ops if op.type.startswith("c_allreduce")]
        ['c_allreduce_sum', 'c_allreduce_sum']
    """

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)
        self.mode = "grad_allreduce"

    def _transpile_main_program(self) -> None:
        block = self.main_program.global_block()
        for op in [op for op in block.ops if op.role == roles.BACKWARD | roles.LOSS]:
            seed = block.var(op.output_arg_names[0])
            share = 1.0 / self.nranks
            _on(block, "scale", seed, block.ops.index(op) + 1, roles.BACKWARD, scale=share)
        last = None
        for op in reversed(list(block.ops)):
            last = self._sum_up(block, op) or last
        updates = (index for index, op in enumerate(block.ops) if op.role & roles.OPTIMIZE)
        self._wait(block, next(updates, len(block.ops)), last, roles.BACKWARD)

    def _sum_up(self, block: Block, op: Operator) -> Variable | None:
        """Sum a gradient over the trainers after the operator that completes it."""
        pairs = op.role_var if op.role & roles.BACKWARD else []
        found = [
            block.var(grad)
            for param, grad in zip(pairs[::2], pairs[1::2], strict=True)
            if not getattr(block.var(param), "is_distributed", False)
        ]
        behind = block.ops.index(op) + 1
        for number, grad in enumerate(found):
            if number == 0:
                _on(block, "c_sync_calc_stream", grad, behind, roles.BACKWARD)
            ring = self._next_ring()
            _on(block, "c_allreduce_sum", grad, behind + 1, roles.BACKWARD, ring_id=ring)
        return found[-1] if found else None


class LocalSGD(Collective):
    """Each trainer updates its own parameters; then their mean over the trainers is taken.

    Args:
        nrings: number of rings, which parameters use in turn.

    Example:
        >>> import dpexec as fluid
        >>> from dpexec.transpiler.collective import LocalSGD
        >>> main, startup = fluid.Program(), fluid.Program()
        >>> with fluid.program_guard(main, startup):
        ...     loss = fluid.layers.reduce_mean(fluid.layers.fc(fluid.data("x", [None, 4]), 1))
        ...     _ = fluid.optimizer.SGD(0.1).minimize(loss)
        >>> LocalSGD().transpile(startup, main, 0, "a:6170,b:6170", "a:6170", False)
        >>> types = [op.type for op in main.global_block().ops]
        >>> types.index("sgd") < types.index("c_allreduce_sum")  # parameters meet after the update
        True
    """

    def __init__(self, nrings: int = 2) -> None:
        super().__init__(nrings)
        self.mode = "local_sgd"
        self.snapshot_key = "@SNAPSHOT"

    def snapshot_name(self, param_name: str) -> str:
        """The name of the variable with a parameter's value after the last exchange."""
        return param_name + self.snapshot_key

    def _snapshot(self, block: Block, param: Variable) -> Variable:
        name = self.snapshot_name(param.name)
        kept = {"dtype": param.dtype, "persistable": True, "stop_gradient": True}
        return block.create_var(name=name, shape=param.shape, **kept)

    def _transpile_startup_program(self) -> None:
        super()._transpile_startup_program()
        block = self.startup_program.global_block()
        for param in list(block.iter_parameters()):
            if not param.is_distributed:
                slots = {"X": [param]}, {"Out": [self._snapshot(block, param)]}
                block.append_op("assign", *slots, {roles.ROLE: roles.FORWARD})

    def _transpile_main_program(self) -> None:
        block, role = self.main_program.global_block(), {roles.ROLE: roles.OPTIMIZE}
        exchanged: list[tuple[Variable, Variable]] = []
        for op in reversed(list(block.ops)):
            if not all(op.inputs.get(slot) for slot in ("Param", "Grad", "LearningRate")):
                continue
            param = block.var(op.inputs["Param"][0])
            if isinstance(param, Parameter) and param.is_distributed:
                continue
            snapshot, behind = self._snapshot(block, param), block.ops.index(op) + 1
            slots = {"X": [snapshot], "Y": [param]}, {"Out": [param]}
            block._insert_op(behind, "elementwise_sub", *slots, role)
            _on(block, "c_sync_calc_stream", param, behind + 1, roles.OPTIMIZE)
            ring = self._next_ring()
            _on(block, "c_allreduce_sum", param, behind + 2, roles.OPTIMIZE, ring_id=ring)
            exchanged.append((param, snapshot))
        last = exchanged[-1][0] if exchanged else None
        self._wait(block, len(block.ops), last, roles.OPTIMIZE)
        for param, snapshot in reversed(exchanged):
            _on(block, "scale", param, role=roles.OPTIMIZE, scale=1.0 / self.nranks)
            slots = {"X": [snapshot], "Y": [param]}, {"Out": [param]}
            block.append_op("elementwise_sub", *slots, role)
            block.append_op("assign", {"X": [param]}, {"Out": [snapshot]}, role)
