"""Which gradients the user sees with sequences; it is less than what has some inside.

The gradient of ``x`` has the sequences of ``x``, as far as operators are concerned. In the original
it depends on the operator that makes the gradient whether it tells of them. Programs see that when
they fetch gradients: arrays cannot show sequences, so these must be asked for as LoDTensors.
"""

from __future__ import annotations

from collections.abc import Collection

from dpexec.engine.core.lod import lod_name
from dpexec.engine.ir import roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.operator import Operator

__all__ = ["without_sequences"]


def without_sequences(block: Block, known: Collection[str]) -> set[str]:
    """The gradients of a block that show no sequences, though what they belong to has some.

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
