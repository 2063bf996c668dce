"""Sequences whose lengths are fed: how many rows they have is known before a run.

``sequence_unpad`` takes sequences out of rows of one length. Its lengths are numbers like others,
so only a run would tell how many rows come out. But usually they are fed. Then sequences of these
lengths are fed beside them, and all that is known of fed sequences is known of the result.
"""

from __future__ import annotations

from dpexec.core.lod import ROWS_SUFFIX, rows_name
from dpexec.ir.block import Block

__all__ = ["feed_rows"]


def feed_rows(block: Block) -> None:
    """Let operators read sequences of fed lengths.

    Args:
        block: the global block of a program that may be changed.
    """
    written: set[str] = set()
    for op in block.ops:
        if op.type == "sequence_unpad":
            (lengths,) = op.inputs["Length"]
            var = block.vars.get(lengths)
            fed = var is not None and var.is_data and not var.lod_level
            if fed and lengths not in written:
                op.inputs["Length" + ROWS_SUFFIX] = [_declare(block, rows_name(lengths))]
        written.update(op.writes)


def _declare(block: Block, name: str) -> str:
    if name not in block.vars:
        block.create_var(
            name=name,
            shape=(-1, 1),
            dtype="int64",
            lod_level=1,
            is_data=True,
            stop_gradient=True,
        )
    return name
