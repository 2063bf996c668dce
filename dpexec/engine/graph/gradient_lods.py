"""Decides which fetched gradients show sequences to the user.

Inside a program, the gradient of ``x`` always has the sequences of ``x``. Whether a fetched
gradient shows them depends, in Paddle, on the operator that makes it. For users it matters since a
NumPy array cannot hold sequences: a gradient that shows them has to be fetched as LoDTensor.
"""

from __future__ import annotations

from collections.abc import Collection

from dpexec.engine.core.lod import lod_name
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator

__all__ = ["without_sequences"]


def without_sequences(block: Block, known: Collection[str]) -> set[str]:
    """The gradients of a block that show no sequences although their variables have some.

    Args:
        block: the global block.
        known: the variables that have sequences.
    """
    bare: set[str] = set()
    for op in block.ops:
        for name in op.output_arg_names:
            if roles.GRAD_SUFFIX in name and name in known:
                (bare.discard if _shows(op, name, known, bare) else bare.add)(name)
    return bare


def _shows(op: Operator, name: str, known: Collection[str], bare: set[str]) -> bool:
    shown = op.definition.grad_lod
    if shown == "own" or op.bodies or lod_name(name) in op.output_arg_names:
        return True
    if shown != "flow":
        return False
    if name in op.outputs.get("Y@GRAD", []):  # elementwise operators look at Y itself
        return True
    arriving = next((n for n in op.input_arg_names if roles.GRAD_SUFFIX in n), "")
    return arriving in known and arriving not in bare
