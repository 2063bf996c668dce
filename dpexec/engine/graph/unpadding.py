"""Row counts of ``sequence_unpad`` that are known before a run.

``sequence_unpad`` takes sequences out of padded rows. Its lengths are ordinary data, so in general
only a run tells how many rows it returns. But usually the lengths are fed: then sequences of these
lengths are fed beside them, and the result is treated like fed sequences. Or ``sequence_pad``
computed the lengths: then the result has the offsets of that operator's input.
"""

from __future__ import annotations

from dpexec.engine.core.lod import ROWS_SUFFIX, rows_name
from dpexec.engine.ir.block import Block

__all__ = ["feed_rows"]


def feed_rows(block: Block) -> None:
    """Connect ``sequence_unpad`` operators to sequences with the lengths that they read.

    Args:
        block: the global block, changed in place.
    """
    written: set[str] = set()
    padded: dict[str, str] = {}
    """Maps the lengths that ``sequence_pad`` returned to its input sequences."""
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
