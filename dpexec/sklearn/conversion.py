"""Dask collections as arrays of numbers, and numbers in memory as such collections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection, tokenize

from dpexec.sklearn.inputs import LABEL, SOLE, WEIGHT, has_names

__all__ = [
    "array_of",
    "arrays_of",
    "inputs_of",
    "is_lazy",
    "meta_of",
    "require_parts",
    "require_rows",
    "rows_of",
    "targets_of",
]

_UNKNOWN = "__UNKNOWN_CATEGORIES__"
"""The category of columns whose categories Dask has not looked at."""


def is_lazy(X: Any) -> bool:
    """Whether samples are Dask collections."""
    return any(map(is_dask_collection, X.values())) if has_names(X) else is_dask_collection(X)


def array_of(found: Any, like: Any = None) -> Any:
    """Convert samples to a Dask array with the same partitions.

    Nullable and Arrow columns become those of NumPy.

    Args:
        found: a Dask array, dataframe or series; or numbers in memory, if ``like`` is given.
        like: a Dask array whose blocks tell how to divide numbers in memory.

    Raises:
        TypeError: the collection is of another kind.
        ValueError: columns hold no numbers, or ``like`` has blocks of unknown sizes.
    """
    if isinstance(found, da.Array):
        return found
    if is_dask_collection(found) and hasattr(type(found), "to_dask_array"):
        return _with_plain_columns(found).to_dask_array()
    if is_dask_collection(found) or like is None:
        raise TypeError(
            f"if X is a Dask collection, all must be Dask arrays, dataframes or series, but one is "
            f"a {type(found).__name__}"
        )
    if np.isnan(like.chunks[0]).any():
        raise ValueError(
            f"a {type(found).__name__} cannot be divided like X, whose partitions have unknown "
            "sizes: call compute_chunk_sizes() of the Dask array X (of a dataframe, "
            "X.to_dask_array(lengths=True)), or pass a Dask collection with the same partitions"
        )
    array = np.asarray(found)
    require_rows([like.shape[0], len(array)])
    return da.from_array(array, chunks=(like.chunks[0], *array.shape[1:]))


def arrays_of(X: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs by name as Dask arrays; those in memory are divided as the first that is lazy."""
    like = next((array_of(value) for value in X.values() if is_dask_collection(value)), None)
    return {name: array_of(value, like) for name, value in X.items()}


def require_parts(arrays: Mapping[str, Any]) -> None:
    """Check that all have as many partitions; rows of known numbers are paired in any partitions.

    Raises:
        ValueError: they differ, and sizes are unknown.
    """
    counts = {name: array.numblocks[0] for name, array in arrays.items()}
    unknown = any(np.isnan(array.chunks[0]).any() for array in arrays.values())
    if unknown and len(set(counts.values())) > 1:
        shown = ", ".join(f"{n} of {'X' if k == SOLE else k}" for k, n in counts.items())
        raise ValueError(f"X and y must have the same partitions, but they have {shown}")


def require_rows(counts: Sequence[float]) -> None:
    """Check that all have as many samples.

    Args:
        counts: numbers of samples; NaN where a number is unknown.

    Raises:
        ValueError: they differ, in scikit-learn's words.
    """
    if len({count for count in counts if count == count}) > 1:
        raise ValueError(f"Found input variables with inconsistent numbers of samples: {counts}")


def meta_of(X: Any) -> Any:
    """Samples without rows, as scikit-learn checks their columns: an array or a dataframe."""
    if hasattr(type(X), "to_dask_array") and not isinstance(X, da.Array):
        return X._meta
    return np.empty((0, *array_of(X).shape[1:]), np.float32)


def require_numbers(X: Any) -> None:
    """Check the columns of a dataframe.

    Raises:
        ValueError: some hold no numbers.
    """
    dtypes = getattr(meta_of(X), "dtypes", None)
    items = [] if dtypes is None or not hasattr(dtypes, "items") else list(dtypes.items())
    other = [f"{name!r} ({dtype})" for name, dtype in items if not _may_hold_numbers(dtype)]
    if other:
        raise ValueError(
            f"columns of X hold no numbers, but must: {', '.join(other)}; encode them first, for "
            "instance with dask.dataframe.get_dummies"
        )


def _may_hold_numbers(dtype: Any) -> bool:
    """Whether a column's elements, or its categories, can be numbers: Dask may not know yet."""
    categories = getattr(dtype, "categories", None)
    if categories is not None:
        return _UNKNOWN in categories or _may_hold_numbers(categories.dtype)
    return dtype.kind in "iubf" or dtype == np.dtype(object)


def _with_plain_columns(found: Any) -> Any:
    """A collection whose numbers have types of NumPy; strings and categories stay."""
    meta = found._meta
    dtypes = list(meta.dtypes) if meta.ndim == 2 else [meta.dtype]
    if all(isinstance(t, np.dtype) or t.kind not in "iubf" for t in dtypes):
        return found
    kinds = {t.kind for t in dtypes}
    if not kinds <= set("iubf"):
        return found
    plain = np.result_type(*(getattr(t, "numpy_dtype", t) for t in dtypes))
    return found.map_partitions(_plain, plain, meta=_plain(meta, plain))


def _plain(part: Any, dtype: np.dtype[Any]) -> Any:
    """A dataframe or series with a type of NumPy.

    Raises:
        ValueError: a value is missing, and the type has no NaN.
    """
    if dtype.kind != "f" and np.any(part.isna()):
        raise ValueError("Input contains NaN.")
    given = {"na_value": np.nan} if dtype.kind == "f" else {}
    names = {"columns": part.columns} if part.ndim == 2 else {"name": part.name}
    return type(part)(part.to_numpy(dtype=dtype, **given), index=part.index, **names)


def inputs_of(X: Any) -> dict[str, Any]:
    """The inputs by name: arrays with whole rows in every block, float32 or int64.

    Raises:
        TypeError: an input is no collection, or has a reserved name.
        ValueError: columns hold no numbers, or X is no matrix.
    """
    if not has_names(X):
        array = array_of(X)
        if array.ndim < 2:
            raise ValueError(
                f"Expected 2D array, got 1D array instead: X is a {type(X).__name__} of "
                f"{array.ndim} dimension; X[:, None] has two"
            )
        require_numbers(X)
        return {SOLE: _numbers(SOLE, rows_of(array), np.float32)}
    if names := {LABEL, WEIGHT} & X.keys():
        raise TypeError(f"{names.pop()!r} cannot be the name of an input")
    arrays = {name: rows_of(array) for name, array in arrays_of(X).items()}
    return {
        name: _numbers(name, a, np.int64 if a.dtype.kind in "iub" else np.float32)
        for name, a in arrays.items()
    }


def targets_of(y: Any) -> Any:
    """Targets of a regression ``(samples,)`` or ``(samples, targets)``, float32 and finite."""
    return _numbers("y", rows_of(y), np.float32)


def rows_of(array: Any) -> Any:
    """A Dask array with whole rows in every block."""
    return array.rechunk(dict.fromkeys(range(1, array.ndim), -1)) if array.ndim > 1 else array


def _numbers(name: str, array: Any, dtype: Any) -> Any:
    shape = array.chunks[0], *((size,) for size in array.shape[1:])
    return array.map_blocks(
        _checked, name=f"checked-{tokenize(array, dtype)}", what=name, kind=np.dtype(dtype),
        chunks=shape, meta=np.empty((0,) * array.ndim, dtype),
    )  # fmt: skip


def _checked(block: Any, what: str, kind: np.dtype[Any]) -> Any:
    """A block as a dense array of numbers.

    Raises:
        ValueError: it has a value that is not finite, or is no number.
    """
    dense = block.toarray() if hasattr(block, "toarray") else np.asarray(block)
    found = dense.astype(kind, copy=False)
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        problem = "NaN" if np.isnan(found).any() else "infinity"
        raise ValueError(f"Input {'X' if what == SOLE else what} contains {problem}.")
    return found
