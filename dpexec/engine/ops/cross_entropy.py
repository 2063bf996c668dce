"""``cross_entropy`` and ``cross_entropy2``: losses of probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.cost import per_element
from dpexec.engine.ir.opdef import GradContext, GradOp, Sample, SampleRng, Spec, op
from dpexec.engine.ops._labels import check_hard, check_soft, positions
from dpexec.engine.ops._rows import fill_rows
from dpexec.engine.ops._shapes import require_float

HUGE = 1e20
"""The value that replaces an infinite loss, as in Paddle."""


def negative_log(xp: Any, x: Any) -> Any:
    """``-log(x)``, with a large number instead of infinity at 0."""
    with np.errstate(divide="ignore"):
        out = xp.log(x)
    xp.maximum(out, -HUGE, out=out)
    return xp.negative(out, out=out)


def _probabilities(r: SampleRng, shape: tuple[int, ...]) -> Any:
    weights = r.uniform(0.2, 1.0, shape)
    return weights / weights.sum(-1, keepdims=True)


def _infer(x: Spec, label: Spec, *, soft_label: bool = False) -> Spec:
    require_float(x)
    if not soft_label:
        return x.replace(shape=check_hard(x, label))
    check_soft(x, label)
    return x.replace(shape=(*x.shape[:-1], 1))


@op(
    "cross_entropy",
    inputs="X Label",
    outputs="Y",
    infer=_infer,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": _probabilities(r, (4, 5)), "Label": r.integers(0, 5, (4, 1))}),
        Sample(
            {"X": _probabilities(r, (2, 3, 5)), "Label": r.integers(0, 5, (2, 3, 1))},
            {"ignore_index": 2},
        ),
        Sample(
            {"X": _probabilities(r, (4, 5)), "Label": _probabilities(r, (4, 5))},
            {"soft_label": True},
            grad=("X",),
        ),
        Sample(
            {
                "X": np.array([[0.0, 1.0, 0.0], [0.25, 0.5, 0.25]]),
                "Label": np.array([[2], [0]]),
            },
            smooth=False,
        ),
    ],
    operand_ulps=2,
    capturable=True,
    grad_lod="own",
    precision="black",
    flops=per_element("Y", 2),
)
def cross_entropy(
    xp: Any, x: Any, label: Any, *, soft_label: bool = False, ignore_index: int = -100
) -> Any:
    """``-log(x[label])``, or ``-sum(label * log(x))`` for soft labels, along the last axis.

    Rows whose label is ``ignore_index`` have the loss 0; losses of class numbers have the labels'
    shape. Source: Paddle op ``cross_entropy``.
    """
    if soft_label:
        loss = negative_log(xp, x)
        loss *= label
        return loss.sum(axis=-1, keepdims=True)
    return _hard_loss(xp, x, label, ignore_index)[0]


def _hard_loss(xp: Any, x: Any, label: Any, ignore_index: int) -> tuple[Any, Any, Any]:
    rows, columns, ignored = positions(xp, label, x.shape[-1], ignore_index)
    match = x.reshape(-1, x.shape[-1])[rows, columns]
    if ignored is not None:
        match = fill_rows(xp, match, ignored, 1)
    loss = negative_log(xp, match).reshape(label.shape)
    return loss, match.reshape(*x.shape[:-1], 1), ignored


@cross_entropy.grad("X", "Label", "Y@GRAD", outputs="X@GRAD", operand_ulps=2)
def cross_entropy_grad(
    xp: Any,
    x: Any,
    label: Any,
    d_y: Any,
    *,
    soft_label: bool = False,
    ignore_index: int = -100,
) -> Any:
    """``-d_y / x`` at the label, or ``-d_y * label / x``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        if soft_label:
            return -d_y * label / x
        rows, columns, ignored = positions(xp, label, x.shape[-1], ignore_index)
        d_match = -d_y.reshape(-1) / x.reshape(-1, x.shape[-1])[rows, columns]
    return _scatter(xp, x.shape, d_match, rows, columns, ignored)


def _scatter(
    xp: Any, shape: tuple[int, ...], d_match: Any, rows: Any, columns: Any, ignored: Any
) -> Any:
    d_x = xp.zeros((d_match.size, shape[-1]), dtype=d_match.dtype)
    if ignored is not None:
        d_match = fill_rows(xp, d_match, ignored, 0)
    d_x[rows, columns] = d_match
    return d_x.reshape(shape)


def _infer2(x: Spec, label: Spec) -> tuple[Spec, Spec, Spec]:
    require_float(x)
    loss = x.replace(shape=check_hard(x, label))
    match = x.replace(shape=(*loss.shape[: x.rank - 1], 1), lod_level=0)
    return loss, x.replace(shape=(*x.shape, 0)), match


@op(
    "cross_entropy2",
    inputs="X Label",
    outputs="Y XShape MatchX",
    infer=_infer2,
    checks_values=True,
    samples=lambda r: [
        Sample({"X": _probabilities(r, (4, 5)), "Label": r.integers(0, 5, (4, 1))}),
        Sample(
            {"X": _probabilities(r, (2, 3, 5)), "Label": r.integers(1, 4, (2, 3, 1))},
            {"ignore_index": 2},
        ),
        Sample({"X": _probabilities(r, (3, 2)), "Label": r.integers(0, 2, (3,))}),
    ],
    operand_ulps=2,
    capturable=True,
    precision="black",
    flops=per_element("Y", 2),
)
def cross_entropy2(
    xp: Any, x: Any, label: Any, *, ignore_index: int = -100
) -> tuple[Any, Any, Any]:
    """``-log(x[label])`` along the last axis; its gradient does not need ``x``.

    Returns the loss, an empty array that carries the shape of ``x``, and ``x[label]``, 0 for
    rows that do not count.
    Source: Paddle op ``cross_entropy2``.
    """
    loss, match, ignored = _hard_loss(xp, x, label, ignore_index)
    if ignored is not None:
        match = fill_rows(xp, match, ignored.reshape(match.shape), 0)
    return loss, xp.empty((*x.shape, 0), dtype=x.dtype), match


def _infer2_grad(x_shape: Spec, match: Spec, label: Spec, d_y: Spec) -> Spec:
    return d_y.replace(shape=x_shape.shape[:-1])


@op(
    "cross_entropy_grad2",
    inputs="XShape MatchX Label Y@GRAD",
    outputs="X@GRAD",
    infer=_infer2_grad,
    checks_values=True,
    operand_ulps=1,
    grad_lod="own",
    flops=per_element("X@GRAD", 2),
)
def cross_entropy_grad2(
    xp: Any, x_shape: Any, match: Any, label: Any, d_y: Any, *, ignore_index: int = -100
) -> Any:
    """``-d_y / x[label]`` at the label. Source: Paddle op ``cross_entropy_grad2``."""
    shape = x_shape.shape[:-1]
    rows, columns, ignored = positions(xp, label, shape[-1], ignore_index)
    with np.errstate(divide="ignore", invalid="ignore"):
        d_match = -d_y.reshape(-1) / match.reshape(-1)
    return _scatter(xp, shape, d_match, rows, columns, ignored)


@cross_entropy2.grad_maker
def cross_entropy2_grad(context: GradContext) -> list[GradOp]:
    """Paddle's name for this gradient has the 2 at its end."""
    forward = context.op
    return [
        GradOp(
            "cross_entropy_grad2",
            {
                "Label": forward.input("Label"),
                "MatchX": forward.output("MatchX"),
                "XShape": forward.output("XShape"),
                "Y@GRAD": context.output_grads["Y"],
            },
            {"X@GRAD": context.input_grads["X"]},
            forward.plain_attrs(),
        )
    ]
