"""``sigmoid_cross_entropy_with_logits``: the loss of independent yes-or-no answers."""

from __future__ import annotations

from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._shapes import require_float, require_shape_of
from dpexec.engine.ops.sigmoid import sigmoid_array


def _infer(x: Spec, label: Spec) -> Spec:
    require_float(x)
    require_shape_of(label, x, "Label", "X")
    return x


def softplus_less(xp: Any, x: Any, label: Any) -> Any:
    """``log(1 + exp(x)) - x * label``, precise even if both terms are nearly equal."""
    loss = xp.maximum(x, 0)
    loss -= x * label
    loss += xp.log1p(xp.exp(-abs(x)))
    return loss


def distance(xp: Any, x: Any, label: Any) -> Any:
    """``sigmoid(x) - label``, precise even if both terms are nearly equal."""
    return (1 - label) * sigmoid_array(xp, x) - label * sigmoid_array(xp, -x)


def _finish(xp: Any, values: Any, label: Any, ignore_index: int, normalize: bool) -> Any:
    """Values, 0 for ignored labels; with ``normalize`` divided by the number of other labels."""
    counts = label != ignore_index
    values *= counts
    if normalize:
        values /= xp.maximum(counts.sum(), 1).astype(values.dtype)
    return values


@op(
    "sigmoid_cross_entropy_with_logits",
    ulps=6,
    inputs="X Label",
    infer=_infer,
    samples=lambda r: [
        Sample({"X": r.normal((3, 4)), "Label": r.uniform(0.0, 1.0, (3, 4))}, grad=("X",)),
        Sample({"X": r.normal((5, 1)) * 8, "Label": r.integers(0, 2, (5, 1)) * 1.0}, grad=("X",)),
        Sample(
            {"X": r.normal((3, 4)), "Label": r.integers(-1, 2, (3, 4)).astype(float)},
            {"ignore_index": -1, "normalize": True},
            grad=("X",),
        ),
    ],
    capturable=True,
    precision="black",
)
def sigmoid_cross_entropy_with_logits(
    xp: Any, x: Any, label: Any, *, ignore_index: int = -100, normalize: bool = False
) -> Any:
    """``max(x, 0) - x * label + log(1 + exp(-abs(x)))`` per element.

    Elements whose label is ``ignore_index`` give 0; ``normalize`` divides by the number of others.
    Source: Paddle op ``sigmoid_cross_entropy_with_logits``.
    """
    return _finish(xp, softplus_less(xp, x, label), label, ignore_index, normalize)


@sigmoid_cross_entropy_with_logits.grad(
    "X", "Label", "Out@GRAD", outputs="X@GRAD", dense=True, ulps=8
)
def sigmoid_cross_entropy_with_logits_grad(
    xp: Any, x: Any, label: Any, d_out: Any, *, ignore_index: int = -100, normalize: bool = False
) -> Any:
    """``(sigmoid(x) - label) * d_out``."""
    return _finish(xp, d_out * distance(xp, x, label), label, ignore_index, normalize)
