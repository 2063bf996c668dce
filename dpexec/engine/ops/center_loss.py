"""``center_loss``: pulls the features of a class towards their centre."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.engine.ops._rows import added_rows, check_rows, require_row_numbers
from dpexec.engine.ops._shapes import require_same_dtype


def _infer(
    x: Spec, label: Spec, centers: Spec, rate: Spec, *, cluster_num: int
) -> tuple[Spec, Spec, Spec]:
    require_same_dtype(x, centers, "X and Centers")
    require_row_numbers(label, "Label")
    require(
        x.rank == centers.rank == 2 and dims_match(x.shape[1], centers.shape[1]),
        f"X {x} and Centers {centers} must be matrices of one width",
    )
    require(
        centers.shape[0] == cluster_num,
        f"cluster_num is {cluster_num}, but Centers {centers} has another height",
    )
    require(rate.size in (1, -1), f"CenterUpdateRate {rate} must have one element")
    loss = x.replace(shape=(x.shape[0], 1))
    return centers.replace(lod_level=0), x.replace(lod_level=0), loss


def _inputs(r: Any, samples: int, classes: int, width: int, rate: float) -> dict[str, Any]:
    return {
        "X": r.normal((samples, width)),
        "Label": r.integers(0, classes, (samples, 1)),
        "Centers": r.normal((classes, width)),
        "CenterUpdateRate": np.array([rate]),
    }


@op(
    "center_loss",
    inputs="X Label Centers CenterUpdateRate",
    outputs="CentersOut SampleCenterDiff Loss",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample(_inputs(r, 6, 3, 4, 0.5), {"cluster_num": 3, "need_update": True}, grad=("X",)),
        Sample(_inputs(r, 4, 5, 2, 0.1), {"cluster_num": 5, "need_update": True}, grad=("X",)),
        Sample(_inputs(r, 3, 2, 3, 0.5), {"cluster_num": 2, "need_update": False}, grad=("X",)),
    ],
    operand_ulps=2,
)
def center_loss(
    xp: Any,
    x: Any,
    label: Any,
    centers: Any,
    rate: Any,
    *,
    need_update: bool,
) -> tuple[Any, Any, Any]:
    """Half the squared distance of every sample from the center of its class, ``(N, 1)``.

    The centers move towards their samples, by the rate times the sum of the differences, divided by
    the number of samples plus one. The differences are returned, too. Source: Paddle op
    ``center_loss``; Wen and others, 2016.

    Raises:
        ValueError: there is no such class.
    """
    classes = label.reshape(-1)
    check_rows(xp, classes, centers.shape[0], "Label")
    difference = x - centers[classes]
    loss = (difference * difference).sum(axis=1, keepdims=True) / 2
    if need_update:
        counts = (classes == xp.arange(centers.shape[0])[:, None]).sum(axis=1, keepdims=True)
        sums = added_rows(xp, classes, difference, centers.shape)
        centers = centers + rate.reshape(()) * sums / (counts + 1).astype(x.dtype)
    return centers, difference, loss


@center_loss.grad(
    "X", "SampleCenterDiff", "Loss@GRAD", outputs="X@GRAD", dense=True, operand_ulps=1
)
def center_loss_grad(xp: Any, x: Any, difference: Any, d_loss: Any) -> Any:
    """The differences times the gradient."""
    return difference * d_loss
