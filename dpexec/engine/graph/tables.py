"""Tables that grow while they are read: Paddle's operator writes what it names as its input only.

Before a program is replicated, a copy of it names the table as an output as well, so that the order
of operators, the state of the program and what a step stores follow.
"""

from __future__ import annotations

from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["with_tables_written"]


def _grows(op: Operator) -> bool:
    return op.type == "lookup_sparse_table" and not op.attrs.get("is_test")


def with_tables_written(program: Program) -> Program:
    """Name the tables that operators may add rows to; a program without such stays as it is.

    Args:
        program: is not changed.
    """
    if not any(_grows(op) for block in program.blocks for op in block.ops):
        return program
    made = program.clone()
    for block in made.blocks:
        for op in filter(_grows, block.ops):
            op.outputs["WOut"] = list(op.inputs["W"])
    made._changed()
    return made
