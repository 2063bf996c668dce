"""Element types of ONNX, and those of programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

from dpexec.engine.core.dtypes import VarType
from dpexec.onnx.loading.errors import DAMAGE, LoadError, UnsupportedError

__all__ = ["array_of", "as_element", "as_var_type", "held", "is_float", "is_integer"]

_TYPES: dict[int, VarType] = {
    onnx.TensorProto.FLOAT: VarType.FP32,
    onnx.TensorProto.DOUBLE: VarType.FP64,
    onnx.TensorProto.FLOAT16: VarType.FP16,
    onnx.TensorProto.BFLOAT16: VarType.FP32,
    onnx.TensorProto.INT8: VarType.INT8,
    onnx.TensorProto.UINT8: VarType.UINT8,
    onnx.TensorProto.INT16: VarType.INT16,
    onnx.TensorProto.INT32: VarType.INT32,
    onnx.TensorProto.INT64: VarType.INT64,
    onnx.TensorProto.BOOL: VarType.BOOL,
}
_HELD = {
    onnx.TensorProto.BFLOAT16: np.float32,
    onnx.TensorProto.INT8: np.int32,
    onnx.TensorProto.INT16: np.int32,
    onnx.TensorProto.UINT16: np.int32,
    onnx.TensorProto.UINT4: np.uint8,
    onnx.TensorProto.INT4: np.int32,
}
"""Types that fluid lacks or has few operators for, and those that hold their numbers."""
_HELD_ARRAYS = {tensor_dtype_to_np_dtype(element) for element in _HELD}
_FLOATS = (VarType.FP16, VarType.FP32, VarType.FP64)


def as_var_type(element: int, what: str) -> VarType:
    """The type of a program's variable for an element type of ONNX.

    Raises:
        UnsupportedError: fluid has no such type.
    """
    if element not in _TYPES:
        known = element in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(element) if known else str(element)
        raise UnsupportedError(f"{what} has the element type {name}, which programs do not have")
    return _TYPES[element]


def as_element(dtype: VarType) -> int:
    """The element type of ONNX for that of a variable."""
    return next(element for element, own in _TYPES.items() if own == dtype)


def held(array: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], int]:
    """Numbers in a type that fluid has, and the ONNX type that they had; 0 if it is the same."""
    if array.dtype not in _HELD_ARRAYS:
        return array, 0
    element = np_dtype_to_tensor_dtype(array.dtype)
    return array.astype(_HELD[element]), element


def array_of(tensor: Any, folder: str, what: str) -> np.ndarray[Any, Any]:
    """The numbers of a tensor of a model.

    Args:
        tensor: ``onnx.TensorProto``.
        folder: folder of the files of external data.
        what: name of the tensor in errors.

    Raises:
        UnsupportedError: fluid has no type that holds such elements.
        LoadError: they do not fit the shape, or their file is missing.
    """
    if tensor.data_type not in _HELD:
        as_var_type(tensor.data_type, what)
    try:
        return onnx.numpy_helper.to_array(tensor, folder)
    except (*DAMAGE, OSError, onnx.checker.ValidationError) as error:
        raise LoadError(f"the numbers of {what} cannot be read: {error}") from error


def is_float(dtype: VarType) -> bool:
    """Whether a type is one of real numbers."""
    return dtype in _FLOATS


def is_integer(dtype: VarType) -> bool:
    """Whether a type is one of integers; booleans are none."""
    return dtype not in _FLOATS and dtype != VarType.BOOL
