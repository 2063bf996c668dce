"""Scores of predictions for Dask collections, summed up block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import numpy as np

from dpexec.sklearn.conversion import array_of, require_rows, rows_of

__all__ = ["accuracy", "determination"]


def accuracy(predicted: Any, y: Any, sample_weight: Any) -> float:
    """The share of right predictions, of samples that may have weights."""

    def sums(found: Any, wanted: Any, weight: Any) -> Any:
        right = np.ravel(wanted) == found
        weight = np.broadcast_to(weight, right.shape)
        return np.array([np.sum(weight * right), np.sum(weight)])

    right, total = _summed(sums, predicted, y, sample_weight)
    return float(right / total)


def determination(predicted: Any, y: Any, sample_weight: Any) -> float:
    """The coefficient of determination, R squared, the mean of those of all targets."""

    def sums(found: Any, wanted: Any, weight: Any) -> Any:
        wanted = wanted.reshape(len(found), -1).astype(np.float64)
        error = (wanted - found.reshape(wanted.shape)) ** 2
        weight = np.broadcast_to(weight, (len(found),))[:, None]
        rows = (error, wanted, np.ones_like(wanted))
        return np.stack([np.sum(weight * row, axis=0) for row in rows])

    error, total, count = _summed(sums, predicted, y, sample_weight)
    middle = total / count

    def distances(found: Any, wanted: Any, weight: Any) -> Any:
        wanted = wanted.reshape(len(found), -1).astype(np.float64)
        weight = np.broadcast_to(weight, (len(found),))[:, None]
        return np.sum(weight * (wanted - middle) ** 2, axis=0)

    spread = _summed(distances, predicted, y, sample_weight)
    flat = np.where(error == 0, 1.0, 0.0)  # of targets that are all equal
    return float(np.where(spread > 0, 1 - error / np.where(spread > 0, spread, 1), flat).mean())


def _summed(function: Callable[..., Any], predicted: Any, y: Any, sample_weight: Any) -> Any:
    """The sum over blocks of what a function returns for predictions, targets and weights.

    Raises:
        ValueError: they have different partitions, or no rows.
    """
    arrays = [predicted, array_of(y, predicted)]
    if sample_weight is not None:
        arrays.append(array_of(sample_weight, predicted))
    require_rows([array.shape[0] for array in arrays])
    known = not any(np.isnan(array.chunks[0]).any() for array in arrays)
    arrays = [a.rechunk({0: predicted.chunks[0]}) for a in arrays] if known else arrays
    blocks = [rows_of(array).to_delayed().ravel() for array in arrays]
    if len({len(each) for each in blocks}) > 1:
        raise ValueError(f"X, y and weights must have the same partitions, not {blocks}")
    call = dask.delayed(function)
    parts = dask.compute(
        *(call(*(p if len(p) == 3 else (*p, 1.0))) for p in zip(*blocks, strict=True))
    )
    return np.sum(parts, axis=0)
