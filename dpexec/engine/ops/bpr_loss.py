"""``bpr_loss``: how well the right item is ranked above the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._edges import NUMBERS, edge
from dpexec.engine.ops._labels import check_hard, positions


def _infer(x: Spec, label: Spec) -> Spec:
    return x.replace(shape=check_hard(x, label))


@op(
    "bpr_loss",
    inputs="X Label",
    outputs="Y",
    infer=_infer,
    checks_values=True,
    samples=lambda r: (
        [
            Sample({"X": r.normal((*rows, 5)), "Label": r.integers(0, 5, (*rows, 1))})
            for rows in ((4,), (1,), (7,))
        ]
        + [
            Sample(
                {"X": r.normal((2, 3, 5)), "Label": r.integers(0, 5, (2, 3, 1))},
                deviates={
                    "X@GRAD": (
                        "treats X as a matrix and fills the first rows of its gradient only; "
                        "dpexec fills all"
                    )
                },
            ),
            edge(
                {"X": NUMBERS * 50, "Label": np.array([[0], [1], [3]])},
                "Y",
                "raises probabilities to at least 1e-10; dpexec does not",
            ),
        ]
    ),
    operand_ulps=4,
    grad_lod="own",
)
def bpr_loss(xp: Any, x: Any, label: Any) -> Any:
    """The mean over the other items of ``log(1 + exp(x[item] - x[label]))``, last axis.

    Source: Paddle op ``bpr_loss``; Hidasi et al. 2016.
    """
    rows, columns = _where(xp, x, label)
    flat = x.reshape(-1, x.shape[-1])
    terms = xp.logaddexp(0, flat - flat[rows, columns][:, None])
    terms[rows, columns] = 0
    return (terms.sum(axis=1) / x.dtype.type(x.shape[-1] - 1)).reshape(label.shape)


@bpr_loss.grad("X", "Label", "Y@GRAD", outputs="X@GRAD", operand_ulps=2)
def bpr_loss_grad(xp: Any, x: Any, label: Any, d_y: Any) -> Any:
    """The gradient of the label is minus the sum of the gradients of the other items."""
    rows, columns = _where(xp, x, label)
    flat = x.reshape(-1, x.shape[-1])
    d_x = d_y.reshape(-1, 1) / x.dtype.type(x.shape[-1] - 1)
    d_x = d_x / (1 + xp.exp(flat[rows, columns][:, None] - flat))
    d_x[rows, columns] = 0
    d_x[rows, columns] = -d_x.sum(axis=1)
    return d_x.reshape(x.shape)


def _where(xp: Any, x: Any, label: Any) -> tuple[Any, Any]:
    rows, columns, _ = positions(xp, label, x.shape[-1], ignore_index=-1 - x.shape[-1])
    return rows, columns
