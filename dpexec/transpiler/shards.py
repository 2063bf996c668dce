"""Dividing parameters into blocks, and assigning the blocks to servers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.engine.ir.variable import Variable
from dpexec.transpiler.config import DistributeTranspilerConfig
from dpexec.transpiler.ps_dispatcher import RoundRobin
from dpexec.transpiler.updates import Updates

__all__ = ["Shard", "Split", "rows_of_blocks", "split_parameters"]


@dataclass(frozen=True)
class Shard:
    """Rows of a parameter on one server.

    Args:
        param: name of the block; the parameter's name if it is not divided.
        grad: name of its gradient on the server.
        begin: index of the first row.
        shape: shape of the block.
        endpoint: endpoint of the server.
    """

    param: str
    grad: str
    begin: int
    shape: tuple[int, ...]
    endpoint: str


@dataclass(frozen=True)
class Split:
    """A parameter, its gradient, and their blocks.

    Args:
        param: name of the parameter.
        grad: name of the gradient that trainers send.
        shards: the blocks, from the first row to the last.
    """

    param: str
    grad: str
    shards: tuple[Shard, ...]

    @property
    def rows(self) -> list[int]:
        """Number of rows of each block."""
        return [shard.shape[0] for shard in self.shards]

    def with_deltas(self) -> Split:
        """The same split, with each block's change in place of its gradient."""
        shards = (replace(shard, grad=f"{shard.param}.delta") for shard in self.shards)
        return replace(self, shards=tuple(shards))


def rows_of_blocks(shape: Sequence[int], count: int, min_size: int) -> list[int]:
    """Divide a parameter into blocks of whole rows, as fluid does.

    Args:
        shape: shape of the parameter.
        count: largest number of blocks.
        min_size: least number of elements of all blocks but the last.

    Returns:
        Rows per block.

    Example:
        >>> rows_of_blocks([10, 3], 4, 6)
        [3, 3, 3, 1]
        >>> rows_of_blocks([10, 3], 4, 8192)
        [10]
    """
    size, width = math.prod(shape), math.prod(shape[1:])
    count = min(count, max(size // min_size, 1))
    rows = math.ceil(math.ceil(size / count) / width)
    return [min(rows, shape[0] - begin) for begin in range(0, shape[0], rows)]


def split_parameters(
    program: Program,
    updates: Updates,
    config: DistributeTranspilerConfig,
    endpoints: Sequence[str],
    tables: frozenset[str] = frozenset(),
) -> list[Split]:
    """Divide the parameters of a program, and assign them to servers.

    Args:
        program: the trainer's, not yet transpiled.
        updates: its operators that update parameters.
        config: options of the transpiler.
        endpoints: endpoints of the servers.
        tables: parameters that only servers hold; always divided.

    Returns:
        Parameters in the order in which they are assigned to servers.

    Raises:
        EnforceNotMet: two blocks of a parameter would be on one server, or an optimizer cannot
            update a table by blocks.
    """
    pairs = list(updates.pairs.items())
    if not config.slice_var_up:
        # fluid's shuffle, so that weights and biases do not meet on the same servers
        order = np.random.RandomState(program.random_seed).permutation(len(pairs))
        pairs = [pairs[at] for at in order]
    dispatcher = (config.split_method or RoundRobin)(list(endpoints))
    block = program.global_block()
    made = []
    for param, grad in pairs:
        rows = _rows(block.var(param), updates.optimizers[param], config, len(endpoints), tables)
        shards = _shards(block.var(param), grad, rows, dispatcher)
        made.append(Split(param, grad, shards))
    return made


def _rows(
    var: Variable,
    optimizer: Operator,
    config: DistributeTranspilerConfig,
    servers: int,
    tables: frozenset[str],
) -> list[int]:
    """The number of rows of each block of a parameter."""
    if optimizer.definition.updates == "whole":
        if var.name in tables:
            raise op_error(optimizer, "it needs the whole of a table with is_distributed=True", {})
        return [var.shape[0]]
    if var.name in tables:
        return rows_of_blocks(var.shape, servers, 1)
    return rows_of_blocks(var.shape, servers if config.slice_var_up else 1, config.min_block_size)


def _shards(param: Variable, grad: str, rows: list[int], dispatcher: Any) -> tuple[Shard, ...]:
    suffixes = [f".block{number}" for number in range(len(rows))] if len(rows) > 1 else [""]
    chosen = dispatcher.dispatch([_Named(param.name + suffix) for suffix in suffixes])
    if len(set(chosen)) < len(chosen):
        raise EnforceNotMet(
            f"{type(dispatcher).__name__} puts two blocks of parameter {param.name} on one "
            "server; every block needs a server of its own"
        )
    begins = np.cumsum([0, *rows[:-1]]).tolist()
    return tuple(
        Shard(param.name + suffix, grad + suffix, begin, (count, *param.shape[1:]), endpoint)
        for suffix, begin, count, endpoint in zip(suffixes, begins, rows, chosen, strict=True)
    )


@dataclass(frozen=True)
class _Named:
    """A block as dispatchers see it."""

    name: str
