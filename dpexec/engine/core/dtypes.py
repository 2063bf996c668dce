"""Variable types and data types, with the codes of Paddle's ``VarDesc.VarType``."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

__all__ = [
    "AttrType",
    "ShownByName",
    "VarDesc",
    "VarType",
    "as_var_type",
    "dtype_name",
    "is_float",
    "to_numpy",
]


class ShownByName:
    """Base class of fluid's enums: a value is shown as programs write it."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"  # type: ignore[attr-defined]

    __repr__ = __str__

    def __int__(self) -> int:
        return int(self.value)  # type: ignore[attr-defined]


class VarType(ShownByName, enum.IntEnum):
    """What a variable holds (``LOD_TENSOR`` ...) or the element type of a tensor (``FP32`` ...).

    Source: ``framework.proto`` of Paddle 1.8; the codes are part of its file formats.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 4], "int64")
        >>> VarType = fluid.core.VarDesc.VarType
        >>> x.dtype == VarType.INT64, x.type == VarType.LOD_TENSOR
        (True, True)
    """

    BOOL = 0
    INT16 = 1
    INT32 = 2
    INT64 = 3
    FP16 = 4
    FP32 = 5
    FP64 = 6
    LOD_TENSOR = 7
    SELECTED_ROWS = 8
    FEED_MINIBATCH = 9
    FETCH_LIST = 10
    STEP_SCOPES = 11
    LOD_RANK_TABLE = 12
    LOD_TENSOR_ARRAY = 13
    PLACE_LIST = 14
    READER = 15
    RAW = 17
    TUPLE = 18
    SIZE_T = 19
    UINT8 = 20
    INT8 = 21


class AttrType(ShownByName, enum.IntEnum):
    """The type of an operator's attribute. Source: ``framework.proto`` of Paddle 1.8.

    Example:
        >>> from dpexec import core
        >>> core.AttrType.FLOAT, core.AttrType.INTS.value
        (AttrType.FLOAT, 3)
    """

    INT = 0
    FLOAT = 1
    STRING = 2
    INTS = 3
    FLOATS = 4
    STRINGS = 5
    BOOL = 6
    BOOLS = 7
    BLOCK = 8
    LONG = 9
    BLOCKS = 10
    LONGS = 11


class VarDesc:
    """Namespace that keeps ``core.VarDesc.VarType`` spelled as in fluid.

    Example:
        >>> from dpexec import core
        >>> core.VarDesc.VarType is core.VarType
        True
    """

    VarType = VarType


_TO_NUMPY: dict[VarType, np.dtype[Any]] = {
    VarType.BOOL: np.dtype(np.bool_),
    VarType.INT16: np.dtype(np.int16),
    VarType.INT32: np.dtype(np.int32),
    VarType.INT64: np.dtype(np.int64),
    VarType.FP16: np.dtype(np.float16),
    VarType.FP32: np.dtype(np.float32),
    VarType.FP64: np.dtype(np.float64),
    VarType.UINT8: np.dtype(np.uint8),
    VarType.INT8: np.dtype(np.int8),
}
_NAMES = {var_type: dtype.name for var_type, dtype in _TO_NUMPY.items()}
_FROM_NUMPY = {dtype: var_type for var_type, dtype in _TO_NUMPY.items()}
_ADDED = 2  # what `isbuiltin` is of types that packages add to NumPy
_FLOATS = frozenset({VarType.FP16, VarType.FP32, VarType.FP64})


def as_var_type(dtype: Any) -> VarType:
    """Turn a ``VarType``, a NumPy dtype or a name such as ``"float32"`` into a ``VarType``.

    Raises:
        TypeError: it is no data type.
        ValueError: it is a NumPy type that fluid's tensors do not have.
    """
    if isinstance(dtype, VarType):
        return dtype
    if isinstance(dtype, int) and not isinstance(dtype, bool) and dtype in list(VarType):
        return VarType(dtype)
    try:
        given: np.dtype[Any] | None = np.dtype(dtype)
    except (TypeError, ValueError):  # the latter of what has a `dtype` of its own
        given = None
    if given is not None and given in _FROM_NUMPY:
        return _FROM_NUMPY[given]
    known = ", ".join(str(d) for d in _FROM_NUMPY)
    # Packages such as ml_dtypes add types to NumPy: whether one is imported must not matter.
    kind = TypeError if given is None or given.isbuiltin == _ADDED else ValueError
    shown = " ".join(repr(dtype).split())
    raise kind(f"{shown:.80} is not a tensor data type; known are {known}")


def to_numpy(dtype: Any) -> np.dtype[Any]:
    """The NumPy dtype of a tensor data type."""
    found = as_var_type(dtype)
    if found not in _TO_NUMPY:
        raise TypeError(f"{found.name} is a kind of variables, not a data type")
    return _TO_NUMPY[found]


def dtype_name(dtype: Any) -> str:
    """The lower-case name users write: ``"float32"``, ``"int64"``, ``"bool"``."""
    return _NAMES[as_var_type(dtype)]


def is_float(dtype: Any) -> bool:
    """Whether gradients can flow through values of this type."""
    return as_var_type(dtype) in _FLOATS
