"""``kept_lod``: the offsets of sequences, if an operator kept the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.lod import NO_SEQUENCES, Lod
from dpexec.engine.ir.opdef import Sample, Spec, op

_NONE = Spec((), VarType.INT64, VarType.RAW)


def _infer(lod: Spec | None, before: Spec, after: Spec) -> Spec:
    if lod is None or not before.rank or not after.rank:
        return _NONE
    if before.shape[0] < 0 or after.shape[0] < 0:
        return lod.replace(shape=(-1,) * lod.rank)
    return lod if before.shape[0] == after.shape[0] else _NONE


@op(
    "kept_lod",
    inputs="X? Before After",
    infer=_infer,
    no_grad=True,
    shape_inputs="Before After",
    samples=lambda r: [
        Sample(
            {"X": Lod([[0, 2, 3]]), "Before": np.ones((3, 2)), "After": np.ones((3, 1, 2))},
            expected={"Out": Lod([[0, 2, 3]])},
        ),
        Sample(
            {"X": Lod([[0, 2], [0, 1, 3]]), "Before": np.ones((3, 2)), "After": np.ones((3, 2))},
            expected={"Out": Lod([[0, 2], [0, 1, 3]])},
        ),
        Sample({"Before": np.ones((3, 2)), "After": np.ones((3, 2))}, expected={"Out": Lod()}),
    ],
)
def kept_lod(xp: Any, lod: Lod | None, before: Any, after: Any) -> Lod:
    """The same offsets, if the tensors have equally many rows; else none.

    Source: dpexec's own; users never write it. Paddle compares the rows in its operators.
    """
    same = np.ndim(before) and np.ndim(after) and before.shape[0] == after.shape[0]
    return lod if lod is not None and same else NO_SEQUENCES
