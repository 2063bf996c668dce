"""Attributes of a program that was read whose names are misspelt.

Paddle keeps such an attribute and takes the default of the one that is missing, without a word.
Others that no operator has are usual: quantization and libraries note theirs on operators.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from dpexec.engine.core.errors import similar
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.program import Program

__all__ = ["warn_of_unknown_attributes"]

_SHOWN = 5


def _misspelt(op: Operator) -> Iterator[str]:
    """What is said of attributes that look like one that the operator lacks."""
    declared = op.definition.attrs
    lacking = [name for name in declared if name not in op.attrs]
    for name in op.attrs if lacking else ():
        meant = "" if name in declared else similar(name, lacking)
        if meant:
            yield f"attribute {name!r}{meant}"


def warn_of_unknown_attributes(program: Program, source: str, depth: int) -> None:
    """Warn once of all attributes that change nothing, because their names are misspelt.

    Args:
        program: as it was read.
        source: where from, to begin the warning with.
        depth: how many calls above is the user's line.
    """
    told = [
        f"operator {op.type}, number {number} of block {block.idx}: {found}"
        for block in program.blocks
        for number, op in enumerate(block.ops)
        for found in _misspelt(op)
    ]
    if not told:
        return
    shown = "; ".join(told[:_SHOWN])
    more = f"; and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
    text = f"{source}: attributes that are unknown are ignored: {shown}{more}"
    warnings.warn(text.encode("utf-8", "replace").decode(), stacklevel=depth + 1)
