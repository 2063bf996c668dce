"""Rows with mean 0 and variance 1: what layer, instance and group norm share."""

from __future__ import annotations

from typing import Any

from dpexec.ir.opdef import require

LARGEST_EPSILON = 1e-3


def check_epsilon(epsilon: float) -> None:
    """Refuse what Paddle refuses."""
    require(
        0 <= epsilon <= LARGEST_EPSILON,
        f"epsilon must be between 0 and {LARGEST_EPSILON}, but is {epsilon}",
    )


def standardized(xp: Any, rows: Any, epsilon: float) -> tuple[Any, Any, Any]:
    """Rows of a matrix with their mean subtracted, divided by their standard deviation.

    Returns:
        The new rows, and columns ``(rows, 1)`` of their means and variances.
    """
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
    along = (d_out * out).mean(axis=1, keepdims=True, dtype=out.dtype)
    d_out -= d_out.mean(axis=1, keepdims=True, dtype=out.dtype)
    out *= along
    d_out -= out
    d_out *= inverse
    return d_out
