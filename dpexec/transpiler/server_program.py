"""Programs of parameter servers: they sum gradients and update parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.transpiler.config import DistributeTranspilerConfig
from dpexec.transpiler.shards import Shard, Split
from dpexec.transpiler.updates import Updates

__all__ = ["ServerSource", "server_program", "server_startup"]


@dataclass(frozen=True)
class ServerSource:
    """The inputs for building the programs of all servers.

    Args:
        program: the original program, before it was transpiled.
        startup: the original startup program.
        updates: the operators of ``program`` that update parameters.
        splits: parameters in the order in which they were assigned to servers.
        endpoints: endpoints of the servers.
        trainers: number of trainers.
        config: options of the transpiler.
        tables: parameters that only servers hold.
    """

    program: Program
    startup: Program
    updates: Updates
    splits: Sequence[Split]
    endpoints: Sequence[str]
    trainers: int
    config: DistributeTranspilerConfig
    tables: frozenset[str] = frozenset()

    def shards_at(self, endpoint: str) -> dict[str, Shard]:
        """The blocks that a server has, by parameter.

        Raises:
            EnforceNotMet: there is no such server.
        """
        if endpoint not in self.endpoints:
            raise EnforceNotMet(
                f"{endpoint} is none of the parameter servers, {', '.join(self.endpoints)}"
            )
        found = ((s.param, shard) for s in self.splits for shard in s.shards)
        return {param: shard for param, shard in found if shard.endpoint == endpoint}


def server_program(source: ServerSource, endpoint: str) -> Program:
    """The program that a server runs.

    Its global block has one operator, ``listen_and_serv``. Every parameter has a block with its
    update operators; the learning rate has one, too.

    Args:
        source: inputs for building it.
        endpoint: endpoint of the server.

    Raises:
        EnforceNotMet: there is no such server.
    """
    return _ServerProgram(source, endpoint).build()


def server_startup(source: ServerSource, endpoint: str, program: Program) -> Program:
    """The startup program of a server.

    Args:
        source: inputs for building it.
        endpoint: endpoint of the server.
        program: the result of :func:`server_program` for it.

    Raises:
        EnforceNotMet: there is no such server.
    """
    shards = source.shards_at(endpoint)
    made = Program()
    made.random_seed = source.startup.random_seed
    block, known = made.global_block(), program.global_block().vars
    for var in known.values():
        _like(block, var, var.name, var.shape, var.persistable)
    for op in source.startup.global_block().ops:
        outputs = op.output_arg_names
        shard = shards.get(outputs[0])
        if shard is not None and shard.param != outputs[0]:
            _initialize_block(block, op, shard)
        elif outputs[0] in known:
            attrs = dict(op.attrs)
            if op.definition.fills:
                attrs["shape"] = list(known[outputs[0]].shape)
            block.append_op(op.type, op.inputs, op.outputs, attrs)
    return made


def _initialize_block(block: Block, op: Operator, shard: Shard) -> None:
    """Initialise a block of a parameter, directly or as a slice of the whole."""
    attrs = dict(op.attrs)
    if op.definition.fills:
        block.append_op(
            op.type, op.inputs, {"Out": shard.param}, {**attrs, "shape": list(shard.shape)}
        )
        return
    (slot,) = op.outputs
    whole = op.block.var(op.outputs[slot][0])
    _like(block, whole, whole.name, whole.shape, persistable=False)
    block.append_op(op.type, op.inputs, op.outputs, attrs)
    ends = shard.begin + shard.shape[0]
    cut = {"axes": [0], "starts": [shard.begin], "ends": [ends]}
    block.append_op("slice", {"Input": whole.name}, {"Out": shard.param}, cut)


def _like(
    block: Block, var: Variable, name: str, shape: Sequence[int], persistable: bool
) -> Variable:
    return block.create_var(
        name=name, shape=shape, dtype=var.dtype, type=var.type, persistable=persistable
    )


class _ServerProgram:
    """A server's program under construction."""

    def __init__(self, source: ServerSource, endpoint: str) -> None:
        self.source, self.endpoint = source, endpoint
        self.shards = source.shards_at(endpoint)
        self.program = Program()
        self.program.random_seed = source.program.random_seed
        self.block = self.program.global_block()
        self.inputs: list[str] = []
        self.blocks: list[Block] = []
        self.block_of_grad: list[str] = []
        self.param_of_sparse: list[str] = []
        self.rates = -1

    def build(self) -> Program:
        updates = self.source.updates
        for param, shard in self.shards.items():
            _like(self.block, self._original(param), shard.param, shard.shape, True)
            self._declare_gradients(self._original(updates.pairs[param]), shard)
        if updates.rates and not self.source.config.geo_sgd_mode:
            rates = self.program._create_block(0)
            self.blocks.append(rates)
            self.rates = rates.idx
            for op in updates.rates:
                self._copy(op, rates, {}, ())
        for param in updates.of:
            if param in self.shards:
                self._update(param, self.shards[param])
        self._listen()
        self.program.current_block_idx = 0
        return self.program

    def _original(self, name: str) -> Variable:
        return self.source.program.global_block().var(name)

    def _declare_gradients(self, grad: Variable, shard: Shard) -> None:
        made = [shard.grad]
        if self.source.config.waits_for_all:
            made = [f"{shard.grad}.trainer_{number}" for number in range(self.source.trainers)]
        for name in {shard.grad: None, **dict.fromkeys(made)}:
            _like(self.block, grad, name, shard.shape, persistable=False)
        self.inputs += made
        if grad.type == VarType.SELECTED_ROWS:
            self.param_of_sparse += [f"{name}:{shard.param}" for name in made]

    def _update(self, param: str, shard: Shard) -> None:
        """The block that updates a parameter or one of its blocks of rows."""
        source = self.source
        block = self.program._create_block(0)
        self.blocks.append(block)
        self.block_of_grad.append(f"{shard.grad}:{block.idx}")
        if source.config.geo_sgd_mode:
            block.append_op("sum", {"X": [shard.param, shard.grad]}, {"Out": shard.param})
            return
        if source.config.waits_for_all:
            parts = [f"{shard.grad}.trainer_{number}" for number in range(source.trainers)]
            block.append_op("sum", {"X": parts}, {"Out": shard.grad})
            mean = {"scale": 1.0 / source.trainers}
            block.append_op("scale", {"X": shard.grad}, {"Out": shard.grad}, mean)
        names = {param: shard.param, source.updates.pairs[param]: shard.grad}
        for op in source.updates.of[param]:
            self._copy(op, block, names, shard.shape)

    def _copy(
        self, op: Operator, block: Block, names: Mapping[str, str], shape: Sequence[int]
    ) -> None:
        """Copy an operator; variables are renamed, and those like the parameter get its shape."""
        known = self.source.program.global_block().vars
        whole = known[op.role_var[0]].shape if names else None
        for name in (*op.input_arg_names, *op.output_arg_names):
            new = names.get(name, name)
            if name in known and new not in self.block.vars:  # else local to a branch
                var = known[name]
                cut = shape if var.shape == whole else var.shape
                _like(self.block, var, new, cut, var.persistable)
        attrs = {name: self._body(value) for name, value in op.attrs.items()}
        inputs, outputs = (
            {slot: [names.get(name, name) for name in given] for slot, given in slots.items()}
            for slots in (op.inputs, op.outputs)
        )
        block.append_op(op.type, inputs, outputs, attrs, callsite=op.callsite)

    def _body(self, value: Any) -> Any:
        """An attribute's value; blocks, such as a schedule's branches, are copied."""
        if not isinstance(value, Block):
            return value
        made = self.program._create_block(self.program.current_block_idx)
        for var in value.vars.values():
            _like(made, var, var.name, var.shape, var.persistable)
        for op in value.ops:
            self._copy(op, made, {}, ())
        self.program._rollback()
        return made

    def _listen(self) -> None:
        source, config = self.source, self.source.config
        attrs = {
            "optimize_blocks": self.blocks,
            "endpoint": self.endpoint,
            "pserver_id": list(source.endpoints).index(self.endpoint),
            "Fanin": source.trainers,
            "distributed_mode": config.distributed_mode,
            "dc_asgd": config.enable_dc_asgd,
            "grad_to_block_id": self.block_of_grad,
            "sparse_grad_to_param": self.param_of_sparse,
            "lr_decay_block_id": self.rates,
            "max_staleness": config.max_staleness,
            "distributed_tables": [
                shard.param for param, shard in self.shards.items() if param in source.tables
            ],
        }
        self.block.append_op("listen_and_serv", {"X": self.inputs}, {}, attrs)
