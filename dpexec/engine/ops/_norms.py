"""Rows with mean 0 and variance 1: shared by layer norm, instance norm and group norm."""

from __future__ import annotations

import math
from typing import Any

from dpexec.engine.ir.opdef import require

LARGEST_EPSILON = 1e-3


def check_epsilon(epsilon: float, largest: float = LARGEST_EPSILON) -> None:
    """Reject values of epsilon that Paddle rejects."""
    require(
        0 <= epsilon <= largest,
        f"epsilon must be between 0 and {largest}, but is {epsilon}",
    )


def standardized(xp: Any, rows: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """Rows of a matrix with their mean subtracted, divided by their standard deviation.

    Returns:
        The new rows, and columns ``(rows, 1)`` of their means and variances; NaN for empty rows.
    """
    if not rows.size:  # NumPy warns of a mean of nothing
        column = xp.full((len(rows), 1), math.nan, rows.dtype)
        return rows.copy(), column, column.copy()
    mean = rows.mean(axis=1, keepdims=True, dtype=rows.dtype)
    out = rows - mean
    variance = (out * out).mean(axis=1, keepdims=True, dtype=rows.dtype)
    out *= inverse_deviation(xp, variance, epsilon)
    return out, mean, variance


def inverse_deviation(xp: Any, variance: Any, epsilon: float) -> Any:
    """``1 / sqrt(variance + epsilon)``."""
    return 1 / xp.sqrt(variance + variance.dtype.type(epsilon))


def standardized_grad(d_out: Any, out: Any, inverse: Any) -> Any:
    """The gradient of :func:`standardized`; overwrites both matrices.

    Args:
        d_out: gradient of the new rows.
        out: the new rows.
        inverse: one over the standard deviations, a column.
    """
    if not out.size:
        return d_out
    along = (d_out * out).mean(axis=1, keepdims=True, dtype=out.dtype)
    d_out -= d_out.mean(axis=1, keepdims=True, dtype=out.dtype)
    out *= along
    d_out -= out
    d_out *= inverse
    return d_out


def standardized_grad_grad(
    normal: Any, inverse: Any, d_y: Any, ddx: Any, scales: tuple[Any, Any, Any]
) -> tuple[Any, Any, Any]:
    """The double gradient of a normalisation along the last axis.

    With h for the normalised x, v for the inverse deviation, e for ``scale * d_y`` and means over
    the axis, the gradient of x is ``v * (e - mean(e) - h * mean(e * h))``.

    Args:
        normal: h.
        inverse: v, one element along the axis.
        d_y: gradient of the result.
        ddx: gradient of the gradient of x.
        scales: the scale, and the gradients of its gradient and of the bias's gradient.

    Returns:
        Gradients of x; of the scale, still to be summed over the rows that it scales; of ``d_y``.
    """
    scale, ddscale, ddbias = scales

    def mean(a: Any) -> Any:
        return a.mean(axis=-1, keepdims=True)

    def centred(a: Any) -> Any:
        return a - mean(a) - normal * mean(a * normal)

    e, spread = d_y * scale, centred(ddx) * inverse
    d_normal = ddscale * d_y - inverse * (mean(e * normal) * ddx + mean(ddx * normal) * e)
    d_inverse = mean(ddx * centred(e))
    d_x = inverse * (centred(d_normal) - d_inverse * inverse * normal)
    return d_x, d_y * spread, scale * spread + ddscale * normal + ddbias
