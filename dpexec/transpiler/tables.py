"""Tables on servers only (``is_distributed=True``): lookups fetch rows from the servers."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program
from dpexec.transpiler.config import DistributeTranspilerConfig
from dpexec.transpiler.shards import Split

__all__ = ["distributed_tables", "fetch_rows"]


def distributed_tables(program: Program, config: DistributeTranspilerConfig) -> frozenset[str]:
    """The tables of a program that are kept on servers only.

    Args:
        program: the program before transpiling.
        config: options of the transpiler.

    Raises:
        EnforceNotMet: an operator other than a lookup reads a table, or its gradient is dense.
    """
    ops = program.global_block().ops
    tables = frozenset(op.input("W")[0] for op in ops if op.attrs.get("is_distributed"))
    if tables and config.geo_sgd_mode:
        raise EnforceNotMet("is_distributed=True is not for geo_sgd_mode: trainers hold all then")
    for op in ops:
        if not op.role & roles.OPTIMIZE and not tables.isdisjoint(op.input_arg_names):
            _check(op)
    return tables


def _check(op: Operator) -> None:
    definition = op.definition
    reads = (definition.forward or definition).looks_up
    if not reads or not op.attrs.get("is_distributed"):
        raise op_error(op, "it reads a table with is_distributed=True, which no trainer holds", {})
    if not op.attrs.get("is_sparse"):
        raise op_error(op, "is_distributed=True needs is_sparse=True", {})


def fetch_rows(program: Program, startup: Program, splits: Sequence[Split], number: int) -> None:
    """Make a trainer's lookups fetch rows from servers, and remove the tables from its programs.

    Args:
        program: the trainer's program, changed in place.
        startup: the trainer's startup program, changed in place.
        splits: the tables.
        number: number of the trainer.
    """
    block, first = program.global_block(), startup.global_block()
    for split in splits:
        for op in block.ops:
            if op.definition.looks_up and op.input("W") == [split.param]:
                op._set_attr("epmap", [shard.endpoint for shard in split.shards])
                op._set_attr("table_names", [shard.param for shard in split.shards])
                op._set_attr("height_sections", split.rows)
                op._set_attr("trainer_id", number)
        block.var(split.param).persistable = False
        first.ops = [op for op in first.ops if split.param not in op.output_arg_names]
        first._remove_var(split.param)
