"""Tables that grow while they are read: Paddle declares such a table only as an input.

Before a program is replicated, a copy of it declares the table as an output as well. Then operators
are ordered correctly, and the table counts as state that a step stores.
"""

from __future__ import annotations

from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["with_tables_written"]


def _grows(op: Operator) -> bool:
    return bool(op.definition.grows) and not op.attrs.get("is_test")


def with_tables_written(program: Program) -> Program:
    """A copy of a program that declares growing tables as outputs; itself if it has none.

    Args:
        program: the program, which is not changed.
    """
    if not any(_grows(op) for block in program.blocks for op in block.ops):
        return program
    made = program.clone()
    for block in made.blocks:
        for op in filter(_grows, block.ops):
            slot = op.definition.grows
            op.outputs[f"{slot}Out"] = list(op.inputs[slot])
    made._changed()
    return made
