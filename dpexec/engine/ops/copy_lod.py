"""``copy_lod``: offsets of sequences for a variable that a loop or a branch overwrites.

It also makes the offsets of concatenated variables.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import NO_SEQUENCES, Lod
from dpexec.engine.ir.opdef import Sample, Spec, op, require


def _infer(parts: list[Spec], *, count: int = 0) -> Spec:
    if len(parts) < count or not all(part.rank for part in parts):
        return Spec((), VarType.INT64, VarType.RAW)
    levels = {part.rank for part in parts}
    require(len(levels) == 1, f"all must have equally many levels of sequences, but have {levels}")
    shapes = zip(*(part.shape for part in parts), strict=True)
    sizes = (-1 if min(found) < 0 else sum(found) - len(found) + 1 for found in shapes)
    return parts[0].replace(shape=tuple(sizes))


@op(
    "copy_lod",
    inputs="X?[]",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        *(Sample({"X": [Lod(levels)]}) for levels in ([[0, 2, 3]], [[0, 1], [0, 4]], [])),
        Sample(
            {"X": [Lod([[0, 2, 3]]), Lod([[0, 0, 4]])]},
            expected={"Out": Lod([[0, 2, 3, 3, 7]])},
        ),
        Sample({"X": [Lod([[0, 2, 3]]), Lod()]}, {"count": 2}, expected={"Out": Lod()}),
    ],
)
def copy_lod(xp: Any, parts: list[Lod], *, count: int = 0) -> Lod:
    """The same offsets under another name; those of several variables are concatenated.

    If one of these ``count`` variables has no sequences, the result has none.

    Source: dpexec's own; users never write it.
    """
    if len(parts) < count or not all(parts):
        return NO_SEQUENCES
    return parts[0] if len(parts) == 1 else Lod.merged(parts)
