"""Arrays by name as pickles, as ``.pdparams`` and ``.pdopt`` files of Paddle hold them."""

from __future__ import annotations

import os
import pickle
import pickletools
from typing import Any, BinaryIO

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet

__all__ = ["Arrays", "read_arrays", "write_arrays"]

Arrays = dict[str, np.ndarray[Any, Any]]


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes are written as latin1, not as {encoding}")
    return text.encode("latin1")


def _of_bytes(shape: Any, dtype: Any, data: Any) -> np.ndarray[Any, Any]:
    if not isinstance(data, bytes):
        raise pickle.UnpicklingError(f"the elements of an array are {type(data)}")
    return np.ndarray(shape, dtype, data)


def _empty(*_: Any) -> np.ndarray[Any, Any]:
    """An empty array, whatever shape a file asks for; its state follows."""
    return np.ndarray((0,), np.int8)


def _no_bytes() -> bytes:
    """What the second version of pickles calls for the elements of an array without any."""
    return b""


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _of_bytes,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}
for _module in ("builtins", "__builtin__"):
    _ALLOWED[_module, "bytes"] = _no_bytes
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _ALLOWED[_module, "_reconstruct"] = _empty
    _ALLOWED[_module, "scalar"] = np.float32(0).__reduce__()[0]


class _ArrayPickler(pickle.Pickler):
    """A pickler that avoids names which differ between NumPy versions, so that Paddle can read."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is np.ndarray:
            return np.ndarray, (obj.shape, obj.dtype, obj.tobytes())
        return NotImplemented


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it holds {module}.{name}; only arrays and plain containers are read"
            ) from None


def write_arrays(file: BinaryIO, arrays: Arrays) -> None:
    """Write arrays by name as ``.pdparams`` and ``.pdopt`` have them, so that Paddle reads them."""
    _ArrayPickler(file, protocol=2).dump(arrays)


def _check_memo(file: BinaryIO) -> None:
    """Reject memo indices beyond the file's size, since pickle would allocate memory for them."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    for code, argument, _ in pickletools.genops(file):
        if code.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > size:
            raise pickle.UnpicklingError(f"it remembers object {argument}")
    file.seek(0)


def read_arrays(path: Any) -> Arrays:
    """Read the arrays of a ``.pdparams`` or ``.pdopt`` file.

    Raises:
        EnforceNotMet: the file is damaged, or holds anything but arrays.
        OSError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            _check_memo(file)
            found = _ArrayUnpickler(file, encoding="latin1").load()
    except OSError:
        raise
    except Exception as error:  # a damaged pickle raises almost anything
        raise EnforceNotMet(f"file {path} is damaged: {type(error).__name__}: {error}") from None
    if not isinstance(found, dict):
        raise EnforceNotMet(f"file {path} is damaged: it holds no dict of arrays")
    for name, value in found.items():
        if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.hasobject:
            raise EnforceNotMet(f"file {path} is damaged at variable {name}: it is no array")
    return {name: np.asarray(value) for name, value in found.items()}
