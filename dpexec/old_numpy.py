"""Names that NumPy had when fluid programs were written, for `dpexec run`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["REMOVED", "old_numpy_names"]

REMOVED: dict[str, Any] = {
    "Inf": np.inf,
    "NAN": np.nan,
    "NaN": np.nan,
    "alltrue": np.all,
    "asscalar": lambda a: a.item(),
    "complex": complex,
    "complex_": np.complex128,
    "cumproduct": np.cumprod,
    "float": float,
    "float_": np.float64,
    "in1d": lambda ar1, ar2, **options: np.isin(np.ravel(ar1), ar2, **options),
    "infty": np.inf,
    "int": int,
    "object": object,
    "product": np.prod,
    "row_stack": np.vstack,
    "sometrue": np.any,
    "str": str,
    "string_": np.bytes_,
    "unicode_": np.str_,
}


@contextmanager
def old_numpy_names() -> Iterator[None]:
    """Give NumPy, inside the with block, those of the names in `REMOVED` that it lacks.

    Example:
        >>> with old_numpy_names():
        ...     np.zeros(2, dtype=np.float).dtype
        dtype('float64')
    """
    missing = [name for name in REMOVED if name not in vars(np)]
    for name in missing:
        setattr(np, name, REMOVED[name])
    try:
        yield
    finally:
        for name in missing:
            delattr(np, name)
