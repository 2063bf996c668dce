"""Dask collections as samples: converted and predicted lazily."""

from __future__ import annotations

import functools
from typing import Any

import cloudpickle
import dask
import numpy as np
from dask.base import is_dask_collection

from dpexec.sklearn.inputs import LABEL, SOLE, WEIGHT, has_names

__all__ = ["array_of", "inputs_of", "is_lazy", "numbers_of", "predicted", "unique", "weights"]

_KEPT = 4  # fitted estimators that a process keeps for the next block


def is_lazy(X: Any) -> bool:
    """Whether samples are Dask collections."""
    return any(map(is_dask_collection, X.values())) if has_names(X) else is_dask_collection(X)


def array_of(found: Any) -> Any:
    """Convert a collection to a Dask array with the same partitions.

    Raises:
        TypeError: the collection is no Dask array, dataframe or series.
    """
    if hasattr(found, "to_dask_array"):
        return found.to_dask_array()
    if not (is_dask_collection(found) and hasattr(found, "map_blocks")):
        raise TypeError(
            f"if X is a Dask collection, all must be Dask arrays, dataframes or series, but one is "
            f"a {type(found).__name__}"
        )
    return found


def inputs_of(X: Any) -> dict[str, Any]:
    """The inputs by name: arrays with whole rows in every block, float32 or int64.

    Raises:
        TypeError: an input is no collection, or has a reserved name.
    """
    if not has_names(X):
        return {SOLE: _rows(array_of(X)).astype(np.float32)}
    if names := {LABEL, WEIGHT} & X.keys():
        raise TypeError(f"{names.pop()!r} cannot be the name of an input")
    arrays = {name: _rows(array_of(value)) for name, value in X.items()}
    return {
        k: a.astype(np.int64 if a.dtype.kind in "iub" else np.float32) for k, a in arrays.items()
    }


def _rows(array: Any) -> Any:
    return array.rechunk(dict.fromkeys(range(1, array.ndim), -1)) if array.ndim > 1 else array


def unique(y: Any) -> np.ndarray[Any, Any]:
    """The distinct labels of a Dask array, sorted."""
    found = [dask.delayed(np.unique)(block) for block in y.to_delayed().ravel()]
    return np.unique(np.concatenate(dask.compute(*found)))


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
    given = array_of(sample_weight).astype(np.float32)
    mean, least = dask.compute(given.mean(), given.min())
    if least < 0 or mean == 0:
        raise ValueError("sample weights must not be negative, and not all 0")
    return (given / mean).map_blocks(_column, dtype=np.float32, **_as_column(given))


def _ones(block: Any) -> Any:
    return np.ones((len(block), 1), np.float32)


def _column(block: Any) -> Any:
    return np.reshape(block, (-1, 1))


def predicted(estimator: Any, method: str, X: Any, dtype: np.dtype[Any]) -> Any:
    """An estimator's predictions for a collection: a Dask array, or a series for a dataframe.

    Args:
        estimator: the estimator; sent to each worker once.
        method: ``predict`` or ``predict_proba``.
        X: the collection.
        dtype: type of the results.

    Raises:
        TypeError: X is a dictionary of collections.
    """
    if has_names(X):
        raise TypeError(f"{method} takes one Dask collection, or a dictionary of arrays")
    rows = _rows(array_of(X))
    axes, width = list(range(1, rows.ndim)), estimator._width(method)
    shape: dict[str, Any] = {"drop_axis": axes, "meta": np.empty((0, 0) if width else 0, dtype)}
    if width:
        shape |= {"new_axis": [1], "chunks": (rows.chunks[0], (width,))}
    fitted = dask.delayed(_Fitted(estimator))
    return rows.map_blocks(_apply, fitted=fitted, method=method, **shape)


class _Fitted:
    """An estimator, pickled immediately, since its values may be on the client's workers.

    Args:
        estimator: the estimator to pickle.
    """

    def __init__(self, estimator: Any) -> None:
        self._pickled = cloudpickle.dumps(estimator)

    @functools.cached_property
    def estimator(self) -> Any:
        """The estimator, unpickled once per process."""
        return cloudpickle.loads(self._pickled)

    def __reduce__(self) -> Any:
        return _fitted, (self._pickled,)


@functools.lru_cache(_KEPT)
def _fitted(pickled: bytes) -> _Fitted:
    made = _Fitted.__new__(_Fitted)
    made._pickled = pickled
    return made


def _apply(block: Any, fitted: _Fitted, method: str) -> Any:
    return getattr(fitted.estimator, method)(block)
