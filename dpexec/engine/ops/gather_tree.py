"""``gather_tree``: whole sequences from the steps of a beam search."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._rows import check_rows
from dpexec.engine.ops._shapes import require_integer, require_same_dtype, same_dims

_IDS = np.array([[[2, 2], [6, 1]], [[3, 9], [6, 1]], [[0, 1], [9, 0]]])
_PARENTS = np.array([[[0, 0], [1, 1]], [[1, 0], [1, 0]], [[0, 0], [0, 1]]])


def _infer(ids: Spec, parents: Spec) -> Spec:
    require_integer(ids, "Ids")
    require_same_dtype(ids, parents, "Ids and Parents")
    require(
        ids.rank == 3 and same_dims(ids.shape, parents.shape),
        f"Ids {ids} and Parents {parents} must both be [steps, samples, beams]",
    )
    return ids.replace(lod_level=0)


@op(
    "gather_tree",
    inputs="Ids Parents",
    infer=_infer,
    no_grad=True,
    checks_values=True,
    samples=lambda r: [
        Sample(
            {"Ids": _IDS, "Parents": _PARENTS},
            expected={"Out": np.array([[[2, 2], [1, 6]], [[3, 3], [6, 1]], [[0, 1], [9, 0]]])},
        ),
        Sample({"Ids": r.integers(0, 9, (4, 2, 3)), "Parents": r.integers(0, 3, (4, 2, 3))}),
        Sample({"Ids": r.integers(0, 9, (1, 3, 2)), "Parents": r.integers(0, 2, (1, 3, 2))}),
    ],
)
def gather_tree(xp: Any, ids: Any, parents: Any) -> Any:
    """For every beam of the last step, the tokens of all steps that led to it.

    ``Parents`` has the beam of the previous step that each token continues. Source: Paddle op
    ``gather_tree``.

    Raises:
        ValueError: there is no such beam.
    """
    check_rows(xp, parents, ids.shape[2], "Parents")
    out = xp.empty_like(ids)
    out[-1] = ids[-1]
    beams = parents[-1]
    for step in range(ids.shape[0] - 2, -1, -1):
        out[step] = xp.take_along_axis(ids[step], beams, axis=1)
        beams = xp.take_along_axis(parents[step], beams, axis=1)
    return out
