"""Sequences whose lengths are fed, or those of others: their rows are known before a run.

``sequence_unpad`` takes sequences out of rows of one length. Its lengths are numbers like others,
so only a run would tell how many rows come out. But usually they are fed. Then sequences of these
lengths are fed beside them, and all that is known of fed sequences is known of the result. Or
``sequence_pad`` made them of sequences, whose offsets are those of the result, too.
"""

from __future__ import annotations

from dpexec.engine.core.lod import ROWS_SUFFIX, rows_name
from dpexec.engine.ir.block import Block

__all__ = ["feed_rows"]


def feed_rows(block: Block) -> None:
    """Let operators read sequences of fed lengths.

    Args:
        block: the global block of a program that may be changed.
    """
    written: set[str] = set()
    padded: dict[str, str] = {}
    """For lengths that were found out, the sequences that have them."""
    for op in block.ops:
        if op.type == "sequence_unpad":
            (lengths,) = op.inputs["Length"]
            var = block.vars.get(lengths)
            fed = var is not None and var.is_data and not var.lod_level
            if fed and lengths not in written:
                op.inputs["Length" + ROWS_SUFFIX] = [_declare(block, rows_name(lengths))]
            elif lengths in padded:
                op.inputs["Length" + ROWS_SUFFIX] = [padded[lengths]]
        written.update(op.writes)
        if padded:
            known = padded.items()
            padded = {n: x for n, x in known if not {n, x} & set(op.writes)}
        if op.type == "sequence_pad":
            padded[op.outputs["Length"][0]] = op.inputs["X"][0]


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
