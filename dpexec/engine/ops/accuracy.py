"""``accuracy``: how often the label is among the best guesses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require


def _infer(out: Spec, indices: Spec, label: Spec) -> tuple[Spec, Spec, Spec]:
    require(
        indices.rank == label.rank == 2 and label.shape[1] in (1, -1),
        f"Indices {indices} must be [samples, k] and Label {label} [samples, 1]",
    )
    require(
        dims_match(indices.shape[0], label.shape[0]),
        f"Indices {indices} and Label {label} must have as many samples",
    )
    ratio = Spec((1,), VarType.FP32, lod_level=out.lod_level)
    return ratio, Spec((1,), VarType.INT32), Spec((1,), VarType.INT32)


@op(
    "accuracy",
    inputs="Out Indices Label",
    outputs="Accuracy Correct Total",
    infer=_infer,
    no_grad=True,
    samples=lambda r: [
        Sample(
            {
                "Out": r.normal((4, 2)),
                "Indices": np.array([[0, 1], [2, 1], [1, 0], [2, 2]]),
                "Label": np.array([[1], [0], [1], [0]]),
            },
            expected={
                "Accuracy": np.array([0.5]),
                "Correct": np.array([2]),
                "Total": np.array([4]),
            },
        ),
        *(
            Sample(
                {
                    "Out": r.normal((rows, best)),
                    "Indices": r.integers(0, 3, (rows, best)),
                    "Label": r.integers(0, 3, (rows, 1)),
                }
            )
            for rows, best in ((6, 1), (3, 3))
        ),
    ],
    capturable=True,
)
def accuracy(xp: Any, out: Any, indices: Any, label: Any) -> Any:
    """The share of rows of ``Indices`` that contain the label, with both counts; 0 of no rows.

    Source: Paddle op ``accuracy``.
    """
    hits = xp.any(indices == label, axis=1).sum()
    total = len(indices)
    share = (hits / max(total, 1)).astype(np.float32).reshape(1)
    return share, hits.astype(np.int32).reshape(1), xp.full((1,), total, np.int32)
