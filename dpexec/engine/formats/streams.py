"""Tensors and selected rows in Paddle 1.x's binary format.

A tensor: version (uint32, 0), number of LoD levels (uint64), per level its size in bytes (uint64)
and offsets (uint64 each), version of the dense part (uint32, 0), size (int32) and bytes of a
``TensorDesc``, the elements. Selected rows: version, number of rows (uint64), rows (int64), height
(int64), then the dense part. All little-endian.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any, BinaryIO

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.formats import wire

__all__ = ["read", "write"]

_LIMIT = 1 << 31  # of descriptions and levels: more is damage, not data


def write(file: BinaryIO, value: LoDTensor | SelectedRows) -> None:
    """Append a tensor or selected rows to a file."""
    file.write(struct.pack("<I", 0))
    if isinstance(value, SelectedRows):
        rows = np.asarray(value.rows(), dtype="<i8")
        file.write(struct.pack("<Q", len(rows)) + rows.tobytes())
        file.write(struct.pack("<q", value.height()))
        _write_dense(file, value.get_tensor().numpy())
        return
    lod = value.lod()
    file.write(struct.pack("<Q", len(lod)))
    for level in lod:
        offsets = np.asarray(level, dtype="<u8")
        file.write(struct.pack("<Q", offsets.nbytes) + offsets.tobytes())
    _write_dense(file, value.numpy())


def _write_dense(file: BinaryIO, array: np.ndarray[Any, Any]) -> None:
    desc = wire.encode(
        "TensorDesc", {"data_type": int(as_var_type(array.dtype)), "dims": list(array.shape)}
    )
    file.write(struct.pack("<Ii", 0, len(desc)) + desc)
    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def read(file: BinaryIO, kind: VarType, name: str, path: Any) -> LoDTensor | SelectedRows:
    """Read the next tensor or selected rows of a file.

    Args:
        file: open for reading.
        kind: ``LOD_TENSOR`` or ``SELECTED_ROWS``.
        name: the variable, for messages.
        path: the file's name, for messages.

    Raises:
        EnforceNotMet: the file is truncated or damaged.
    """
    try:
        return _read_rows(file) if kind == VarType.SELECTED_ROWS else _read_tensor(file)
    except (TypeError, ValueError, KeyError, struct.error, EnforceNotMet) as error:
        raise EnforceNotMet(f"file {path} is damaged at variable {name}: {error}") from None


def _take(file: BinaryIO, size: int) -> bytes:
    here = file.tell()
    left = file.seek(0, os.SEEK_END) - here
    if left < size:  # checked before allocating: a damaged file may ask for any size
        raise ValueError(f"it ends {size - left} bytes too early")
    file.seek(here)
    return file.read(size)


def _number(file: BinaryIO, format: str) -> int:
    (value,) = struct.unpack("<" + format, _take(file, struct.calcsize(format)))
    return int(value)


def _version(file: BinaryIO) -> None:
    version = _number(file, "I")
    if version != 0:
        raise ValueError(f"version {version} is unknown, only 0 is known")


def _size(file: BinaryIO, format: str) -> int:
    size = _number(file, format)
    if not 0 <= size < _LIMIT:
        raise ValueError(f"a size of {size} cannot be")
    return size


def _read_tensor(file: BinaryIO) -> LoDTensor:
    _version(file)
    levels = _size(file, "Q")
    lod = [
        np.frombuffer(_take(file, _size(file, "Q")), dtype="<u8").tolist() for _ in range(levels)
    ]
    tensor = LoDTensor()
    tensor.array = _read_dense(file)
    tensor.set_lod(lod)
    return tensor


def _read_rows(file: BinaryIO) -> SelectedRows:
    _version(file)
    rows = np.frombuffer(_take(file, 8 * _size(file, "Q")), dtype="<i8")
    height = _number(file, "q")
    return SelectedRows(rows.astype(np.int64), height, _read_dense(file))


def _read_dense(file: BinaryIO) -> np.ndarray[Any, Any]:
    _version(file)
    desc = wire.decode("TensorDesc", _take(file, _size(file, "i")))
    dims = desc.get("dims", [])
    if any(dim < 0 for dim in dims):
        raise ValueError(f"a shape of {dims} cannot be")
    dtype = to_numpy(VarType(desc["data_type"]))
    data = _take(file, math.prod(dims) * dtype.itemsize)
    return np.frombuffer(data, dtype=dtype).reshape(dims).copy()
