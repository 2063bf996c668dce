"""``softmax_with_cross_entropy``: the loss of logits in one step."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, op, require
from dpexec.engine.ops._costs import SOFTMAX
from dpexec.engine.ops._labels import check_hard, check_soft, positions
from dpexec.engine.ops._rows import fill_rows
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops.cross_entropy import negative_log
from dpexec.engine.ops.softmax import softmax_array, softmax_powers


def _samples(r: SampleRng) -> list[Sample]:
    weights = r.uniform(0.0, 1.0, (4, 5))
    return [
        Sample({"Logits": r.normal((4, 5)), "Label": r.integers(0, 5, (4, 1))}),
        Sample(
            {"Logits": r.normal((2, 5, 3)), "Label": r.integers(0, 5, (2, 1, 3))},
            {"axis": 1, "ignore_index": 2},
            deviates={
                "Logits@GRAD": (
                    "ignores ignore_index in the gradient on CPUs; dpexec gives ignored rows 0"
                )
            },
        ),
        Sample({"Logits": r.normal((2, 5, 3)), "Label": r.integers(0, 5, (2, 1, 3))}, {"axis": 1}),
        Sample(
            {"Logits": np.array([[0.0, 40.0, -20.0]]), "Label": np.array([[2]])},
        ),
        Sample(
            {"Logits": np.array([[0.0, 80.0, -90.0]]), "Label": np.array([[2]])},
            smooth=False,
        ),
        Sample(
            {"Logits": r.normal((4, 5)), "Label": weights / weights.sum(-1, keepdims=True)},
            {"soft_label": True},
            grad=("Logits",),
        ),
    ]


def _infer(
    logits: Spec, label: Spec, *, soft_label: bool = False, axis: int = -1
) -> tuple[Spec, Spec]:
    require_float(logits, "Logits")
    rank = logits.rank
    require(rank and -rank <= axis < rank, f"axis {axis} is not an axis of Logits {logits}")
    if not soft_label:
        return logits, logits.replace(shape=check_hard(logits, label, axis))
    check_soft(logits, label)
    axis %= rank
    return logits, logits.replace(shape=(*logits.shape[:axis], 1, *logits.shape[axis + 1 :]))


@op(
    "softmax_with_cross_entropy",
    inputs="Logits Label",
    outputs="Softmax Loss",
    infer=_infer,
    attrs={"numeric_stable_mode": True},
    checks_values=True,
    samples=_samples,
    operand_ulps=4,
    capturable=True,
    precision="black",
    flops=per_element("Softmax", SOFTMAX),
)
def softmax_with_cross_entropy(
    xp: Any,
    logits: Any,
    label: Any,
    *,
    soft_label: bool = False,
    ignore_index: int = -100,
    axis: int = -1,
) -> tuple[Any, Any]:
    """The softmax of the logits, and its cross entropy, along ``axis``.

    Soft labels must sum to 1, which the gradient relies on. Both settings of
    ``numeric_stable_mode`` are computed in the stable way.
    Source: Paddle op ``softmax_with_cross_entropy``.
    """
    if soft_label:
        softmax = softmax_array(xp, logits, axis)
        loss = negative_log(xp, softmax)
        loss *= label
        return softmax, loss.sum(axis=axis, keepdims=True)
    rows, columns, ignored = positions(xp, label, logits.shape[axis], ignore_index)
    powers = softmax_powers(xp, xp.ascontiguousarray(xp.moveaxis(logits, axis, -1)), -1)
    flat = powers.reshape(-1, powers.shape[-1])
    right = flat[rows, columns]
    flat[rows, columns] = 0
    others = flat.sum(axis=1)
    flat[rows, columns] = right
    flat /= (others + right)[:, None]
    # -log(p) would be wrong where p is nearly 1
    near = xp.log1p(others / xp.maximum(others, right))
    loss = xp.where(right > others, near, negative_log(xp, flat[rows, columns]))
    if ignored is not None:
        loss = fill_rows(xp, loss, ignored, 0)
    return xp.ascontiguousarray(xp.moveaxis(powers, -1, axis)), loss.reshape(label.shape)


def _infer_grad(softmax: Spec, label: Spec, d_loss: Spec) -> Spec:
    return softmax.replace(lod_level=0)


@softmax_with_cross_entropy.grad(
    "Softmax", "Label", "Loss@GRAD", outputs="Logits@GRAD", infer=_infer_grad, operand_ulps=1
)
def softmax_with_cross_entropy_grad(
    xp: Any,
    softmax: Any,
    label: Any,
    d_loss: Any,
    *,
    soft_label: bool = False,
    ignore_index: int = -100,
    axis: int = -1,
) -> Any:
    """``(softmax - label) * d_loss``; ignored rows have no gradient, as Paddle documents it.

    (Paddle's CPU kernel gives them one nevertheless.)
    """
    if soft_label:
        return (softmax - label) * d_loss
    flat = xp.moveaxis(softmax, axis, -1)
    shape = flat.shape
    rows, columns, ignored = positions(xp, label, shape[-1], ignore_index)
    d_loss = d_loss.reshape(-1, 1)
    d_flat = flat.reshape(-1, shape[-1]) * d_loss
    d_flat[rows, columns] -= d_loss[:, 0]
    if ignored is not None:
        d_flat = fill_rows(xp, d_flat, ignored, 0)
    return xp.ascontiguousarray(xp.moveaxis(d_flat.reshape(shape), -1, axis))
