"""Dask collections as samples: converted and predicted lazily."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import cloudpickle
import dask
import dask.array as da
import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from dpexec.engine.core.cache import limit_of
from dpexec.sklearn.conversion import array_of, arrays_of, require_rows, rows_of
from dpexec.sklearn.inputs import LABEL, has_names

__all__ = ["divided", "numbers_of", "predicted", "unique", "weighted_by_class", "weights"]


def unique(y: Any) -> np.ndarray[Any, Any]:
    """The distinct labels of a Dask array, sorted."""
    found = [dask.delayed(np.unique)(block) for block in y.to_delayed().ravel()]
    labels = np.unique(np.concatenate(dask.compute(*found)))
    if not len(labels):
        raise ValueError("Found array with 0 sample(s): no partition of y has a row")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("Input y contains NaN.")
    check_classification_targets(labels)
    return labels


def numbers_of(y: Any, classes: np.ndarray[Any, Any]) -> Any:
    """The index of each label among the classes, ``(samples, 1)``."""
    return y.map_blocks(_number, classes, dtype=np.int64, **_as_column(y))


def _number(labels: Any, classes: np.ndarray[Any, Any]) -> Any:
    return np.searchsorted(classes, np.ravel(labels)).reshape(-1, 1)


def _as_column(y: Any) -> dict[str, Any]:
    return {"new_axis": 1, "chunks": (y.chunks[0], (1,))} if y.ndim == 1 else {}


def weights(sample_weight: Any, target: Any) -> Any:
    """Weights ``(samples, 1)`` with a mean of 1; all are 1 if none are given.

    Raises:
        ValueError: a weight is negative, or all are 0.
    """
    if sample_weight is None:
        return target[:, :1].map_blocks(_ones, dtype=np.float32, chunks=(target.chunks[0], (1,)))
    given = array_of(sample_weight, target).astype(np.float32)
    require_rows([target.shape[0], given.shape[0]])
    mean, least = dask.compute(given.mean(), given.min())
    if least < 0 or mean == 0:
        raise ValueError("sample weights must not be negative, and not all 0")
    return (given / mean).map_blocks(_column, dtype=np.float32, **_as_column(given))


def weighted_by_class(
    sample_weight: Any, numbers: Any, class_weight: Any, classes: np.ndarray[Any, Any]
) -> Any:
    """Weights of samples times the weights of their classes, a Dask array ``(samples,)``.

    Args:
        sample_weight: a collection; None if all samples have the same weight.
        numbers: the index of each sample's class, ``(samples, 1)``.
        class_weight: ``"balanced"``, or a dict from label to weight; labels that it lacks have 1.
        classes: the labels.

    Raises:
        ValueError: ``class_weight`` is something else, or has none of the labels.
    """
    if class_weight == "balanced":
        counts = [dask.delayed(_count)(b, len(classes)) for b in numbers.to_delayed().ravel()]
        total = np.sum(dask.compute(*counts), axis=0)
        of_class = total.sum() / (len(classes) * np.maximum(total, 1))
    else:
        of_class = compute_class_weight(class_weight, classes=classes, y=classes)
    found = numbers[:, 0].map_blocks(_taken, of_class, dtype=np.float64)
    return found if sample_weight is None else found * array_of(sample_weight, numbers)


def _count(numbers: Any, classes: int) -> Any:
    return np.bincount(np.ravel(numbers), minlength=classes)


def _taken(numbers: Any, values: Any) -> Any:
    return values[numbers]


def divided(
    arrays: Mapping[str, Any], fraction: float, seed: int, scheduler: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The rows to train on, and rows for validation, which are computed now and kept by Dask.

    They are drawn in each block from ``seed`` and the number of the block.

    Raises:
        ValueError: no block has enough rows for a validation sample.
    """
    parts = [
        {name: _some(array, fraction, seed, held) for name, array in arrays.items()}
        for held in (False, True)
    ]
    train, held = parts
    (held,) = dask.persist(held, scheduler=scheduler)
    sizes = [dask.delayed(len)(block) for block in held[LABEL].to_delayed().ravel()]
    if not any(dask.compute(*sizes, scheduler=scheduler)):
        raise ValueError(f"validation_fraction={fraction} of every partition is less than a row")
    return train, held


def _some(array: Any, fraction: float, seed: int, held: bool) -> Any:
    unknown = (np.nan,) * array.numblocks[0]
    return array.map_blocks(
        _drawn, fraction=fraction, seed=seed, held=held, chunks=(unknown, *array.chunks[1:]),
        meta=array._meta,
    )  # fmt: skip


def _drawn(
    block: Any, fraction: float, seed: int, held: bool, block_id: tuple[int, ...] = (0,)
) -> Any:
    order = np.random.default_rng([seed, block_id[0]]).permutation(len(block))
    count = int(fraction * len(block))
    return block[np.sort(order[:count] if held else order[count:])]


def _ones(block: Any) -> Any:
    return np.ones((len(block), 1), np.float32)


def _column(block: Any) -> Any:
    return np.reshape(block, (-1, 1))


def predicted(estimator: Any, method: str, X: Any, dtype: np.dtype[Any], width: int = 0) -> Any:
    """An estimator's predictions for collections: a Dask array.

    Args:
        estimator: the estimator; sent to each worker once.
        method: the method that predicts.
        X: a collection, or a dictionary of collections with the same partitions.
        dtype: type of the results.
        width: number of columns of the results; 0 for one number per sample.

    Raises:
        ValueError: the collections of a dictionary have different partitions.
    """
    names = list(X) if has_names(X) else None
    found = arrays_of(X).values() if has_names(X) else [array_of(X)]
    arrays = [rows_of(array) for array in found]
    if len({array.numblocks[0] for array in arrays}) > 1:
        counts = dict(zip(names or [], (array.numblocks[0] for array in arrays), strict=True))
        raise ValueError(f"collections must have the same partitions, but they have {counts}")
    axis = itertools.count(2)  # the arrays' own axes; 0 is for rows, 1 for the results' columns
    blocks = [
        part for array in arrays
        for part in (array, (0, *(next(axis) for _ in array.shape[1:])))
    ]  # fmt: skip
    return da.blockwise(
        _apply, (0, 1) if width else (0,), *blocks,
        names=names, fitted=dask.delayed(_Fitted(estimator)), method=method,
        new_axes={1: width} if width else None, concatenate=True, align_arrays=False,
        meta=np.empty((0, 0) if width else 0, dtype),
    )  # fmt: skip


class _Fitted:
    """An estimator, pickled immediately, since its values may be on the client's workers.

    Args:
        estimator: the estimator to pickle.
    """

    def __init__(self, estimator: Any) -> None:
        self._pickled = cloudpickle.dumps(estimator._predicting())

    @functools.cached_property
    def estimator(self) -> Any:
        """The estimator, unpickled once per process."""
        return cloudpickle.loads(self._pickled)

    def __reduce__(self) -> Any:
        return _fitted, (self._pickled,)


@functools.lru_cache(limit_of("fitted estimators"))
def _fitted(pickled: bytes) -> _Fitted:
    made = _Fitted.__new__(_Fitted)
    made._pickled = pickled
    return made


def _apply(*blocks: Any, names: list[str] | None, fitted: _Fitted, method: str) -> Any:
    """Predictions for a block of rows; none for an empty one, which scikit-learn would refuse."""
    X = blocks[0] if names is None else dict(zip(names, blocks, strict=True))
    call = getattr(fitted.estimator, method)
    return call(X) if blocks[0].shape[0] else _none_like(call, X)


def _none_like(call: Callable[[Any], Any], X: Any) -> Any:
    """An empty array of predictions, in the shape and type of those for a row of zeros."""
    if isinstance(X, dict):
        return call({name: _zeros(value) for name, value in X.items()})[:0]
    return call(_zeros(X))[:0]


def _zeros(block: Any) -> Any:
    return np.zeros((1, *np.shape(block)[1:]), block.dtype)
