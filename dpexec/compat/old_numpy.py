"""Old NumPy's names and behaviour, for `dpexec run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["CHANGED", "REMOVED", "old_numpy_names"]

REMOVED: dict[str, Any] = {
    "Inf": np.inf,
    "NAN": np.nan,
    "NaN": np.nan,
    "alltrue": np.all,
    "asfarray": lambda a, dtype=np.float64: np.asarray(a, dtype),
    "asscalar": lambda a: a.item(),
    "complex": complex,
    "complex_": np.complex128,
    "cumproduct": np.cumprod,
    "float": float,
    "float_": np.float64,
    "in1d": lambda ar1, ar2, **options: np.isin(np.ravel(ar1), ar2, **options),
    "infty": np.inf,
    "int": int,
    "int0": np.intp,
    "msort": lambda a: np.sort(a, axis=0),
    "object": object,
    "product": np.prod,
    "round_": np.round,
    "row_stack": np.vstack,
    "sometrue": np.any,
    "str": str,
    "string_": np.bytes_,
    "trapz": np.trapezoid,
    "unicode": str,
    "unicode_": np.str_,
}
"""What is gone."""

_array, _fromstring, _reshape = np.array, np.fromstring, np.reshape


def _array_of_anything(object: Any, dtype: Any = None, **options: Any) -> Any:
    """``np.array``; rows of different lengths, such as texts, become an array of lists.

    ``copy=False`` copies if necessary.
    """
    if options.get("copy") is False:
        options["copy"] = None
    try:
        return _array(object, dtype, **options)
    except ValueError as error:
        if dtype is not None or "inhomogeneous" not in str(error):
            raise
        return _array(object, np.object_, **options)


def _numbers_in(string: Any, dtype: Any = float, count: int = -1, sep: str = "") -> Any:
    """``np.fromstring``, which also accepts bytes, as readers of images use it."""
    if sep:
        return _fromstring(string, dtype, count, sep=sep)
    return np.frombuffer(string, dtype, count).copy()


def _reshaped(a: Any, newshape: Any = None, order: Any = "C", **options: Any) -> Any:
    """``np.reshape`` with the old argument name ``newshape``."""
    return _reshape(a, options.pop("shape", newshape), order, **options)


CHANGED: dict[str, Any] = {
    "array": _array_of_anything,
    "fromstring": _numbers_in,
    "reshape": _reshaped,
}
"""What takes less than it took."""


@contextmanager
def old_numpy_names() -> Iterator[None]:
    """Inside the with block, add names of `REMOVED` to NumPy, and replace those in `CHANGED`.

    Numbers in lists are printed without their types, as in files that scripts write and read.

    Example:
        >>> with old_numpy_names():
        ...     np.zeros(2, dtype=np.float).dtype
        dtype('float64')
        >>> with old_numpy_names():
        ...     print([np.float32(0.5)])
        [0.5]
    """
    missing = [name for name in REMOVED if name not in vars(np)]
    now = {name: getattr(np, name) for name in CHANGED}
    vars(np).update({name: REMOVED[name] for name in missing}, **CHANGED)
    try:
        with np.printoptions(legacy="1.25"):
            yield
    finally:
        vars(np).update(now)
        for name in missing:
            delattr(np, name)
