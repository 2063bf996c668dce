"""Inputs and outputs of predictors."""

from __future__ import annotations

import enum
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.arguments.explained import explained
from dpexec.engine.core.dtypes import ShownByName
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor

__all__ = [
    "PaddleBuf",
    "PaddleDType",
    "PaddleTensor",
    "ZeroCopyTensor",
    "paddle_dtype_size",
    "paddle_tensor_to_bytes",
]

Array = np.ndarray[Any, Any]
Levels = Sequence[Sequence[int]]


class PaddleDType(ShownByName, enum.IntEnum):
    """The element type of a tensor of a predictor. Source: ``paddle_api.h`` of Paddle 1.8.

    Example:
        >>> from dpexec import core
        >>> import numpy as np
        >>> core.PaddleTensor(np.zeros([2, 2], "int64")).dtype
        PaddleDType.INT64
    """

    FLOAT32 = 0
    INT64 = 1
    INT32 = 2


_TO_NUMPY: dict[PaddleDType, np.dtype[Any]] = {
    PaddleDType.FLOAT32: np.dtype(np.float32),
    PaddleDType.INT64: np.dtype(np.int64),
    PaddleDType.INT32: np.dtype(np.int32),
}
_FROM_NUMPY = {dtype: kind for kind, dtype in _TO_NUMPY.items()}


def _kind(array: Array, name: str) -> PaddleDType:
    if array.dtype not in _FROM_NUMPY:
        raise EnforceNotMet(
            f"variable {name} holds {array.dtype}: predictors give float32, int32 and int64"
        )
    return _FROM_NUMPY[array.dtype]


def _parts(value: Array | LoDTensor) -> tuple[Array, list[list[int]]]:
    """Elements and offsets of a result."""
    return (value, []) if isinstance(value, np.ndarray) else (value.numpy(), value.lod())


def _accepted(data: Any) -> Array:
    """Convert to one of the three supported types; other integers become int32, as in fluid.

    Fluid also truncates float64 to integers. That is an error here.
    """
    array = np.asarray(data)
    if array.dtype == np.int64 and not isinstance(data, np.ndarray):
        return np.array(data, np.int32)
    if array.dtype in _FROM_NUMPY:
        return np.asarray(array, order="C")
    if np.can_cast(array.dtype, np.int32):
        return array.astype(np.int32, order="C")
    raise TypeError(f"predictors take float32, int32 and int64, not {array.dtype}")


class PaddleBuf:
    """A buffer of bytes, readable as numbers of several types.

    Args:
        data: number of bytes, or an array or list to copy; lists become float32.

    Raises:
        TypeError: the array has a type that predictors do not support.

    Example:
        >>> from dpexec import core
        >>> buffer = core.PaddleBuf([0.5, 2.0])
        >>> buffer.length(), buffer.float_data()  # bytes; what they are read as is up to the reader
        (8, [0.5, 2.0])
    """

    def __init__(self, data: Any) -> None:
        self._bytes = np.zeros(data if isinstance(data, int) else 0, np.uint8)
        if not isinstance(data, int):
            self.reset(data)

    @classmethod
    def _sharing(cls, array: Array) -> PaddleBuf:
        made = cls(0)
        made._bytes = array.reshape(-1).view(np.uint8)
        return made

    def resize(self, length: int) -> None:
        """Make room for at least ``length`` bytes."""
        if length > self._bytes.size:
            self._bytes = np.concatenate(
                [self._bytes, np.zeros(length - self._bytes.size, np.uint8)]
            )

    def reset(self, data: Any) -> None:
        """Copy an array or a list to the start of the buffer, which does not shrink."""
        array = _accepted(np.array(data, np.float32) if isinstance(data, list) else data)
        found = array.reshape(-1).view(np.uint8)
        self.resize(found.size)
        self._bytes[: found.size] = found

    def length(self) -> int:
        """The number of bytes."""
        return self._bytes.size

    def empty(self) -> bool:
        """Whether there are no bytes."""
        return self._bytes.size == 0

    def float_data(self) -> list[float]:
        """All bytes as float32."""
        return self._read(PaddleDType.FLOAT32).tolist()

    def int32_data(self) -> list[int]:
        """All bytes as int32."""
        return self._read(PaddleDType.INT32).tolist()

    def int64_data(self) -> list[int]:
        """All bytes as int64."""
        return self._read(PaddleDType.INT64).tolist()

    def tolist(self, dtype: str) -> list[Any]:
        """All bytes as ``"float32"``, ``"int32"`` or ``"int64"``.

        Raises:
            ValueError: the type is another one.
        """
        for kind, known in _TO_NUMPY.items():
            if dtype == known.name:
                return self._read(kind).tolist()
        raise ValueError(f"dtype is {dtype!r}, but must be 'float32', 'int32' or 'int64'")

    def _read(self, kind: PaddleDType) -> Array:
        dtype = _TO_NUMPY[kind]
        return self._bytes[: self._bytes.size // dtype.itemsize * dtype.itemsize].view(dtype)


class PaddleTensor:
    """An input or output of :meth:`PaddlePredictor.run`.

    Attributes:
        name: name of the variable; used for inputs with ``switch_specify_input_names``.
        shape: the dimensions.
        dtype: the element type.
        lod: offsets of sequences, per level.
        data: the ``PaddleBuf`` with the elements.

    Args:
        data: float32, int32 or int64; None for a tensor that is filled later.
        name: name of the variable.
        lod: offsets of sequences, per level.
        copy: False shares the array's memory, if it is contiguous.

    Raises:
        TypeError: the array has an unsupported type.

    Example:
        >>> from dpexec import core
        >>> import numpy as np
        >>> x = core.PaddleTensor(np.ones([2, 3], "float32"), name="x")
        >>> x.shape, x.dtype, float(x.as_ndarray().sum())
        ([2, 3], PaddleDType.FLOAT32, 6.0)
    """

    def __init__(
        self, data: Any = None, name: str = "", lod: Levels = (), copy: bool = True
    ) -> None:
        self.name = name
        self.lod: list[list[int]] = [list(level) for level in lod]
        self.shape: list[int] = []
        self.dtype = PaddleDType.FLOAT32
        self.data = PaddleBuf(0)
        if data is not None:
            array = _accepted(data)
            self.shape, self.dtype = list(array.shape), _FROM_NUMPY[array.dtype]
            self.data = PaddleBuf(array) if copy else PaddleBuf._sharing(array)

    @classmethod
    def _of(cls, value: Array | LoDTensor, name: str) -> PaddleTensor:
        """Make an output of a run."""
        array, lod = _parts(value)
        _kind(array, name)
        return cls(array, name, lod, copy=False)

    def as_ndarray(self) -> Array:
        """A copy as an array of the tensor's shape.

        Raises:
            EnforceNotMet: there are fewer elements than the shape requires.
        """
        count, found = math.prod(self.shape), self.data._read(self.dtype)
        if count > found.size:
            raise EnforceNotMet(
                f"the PaddleTensor {self.name!r} has shape {self.shape}, but its data has "
                f"{found.size} elements of {self.dtype}; a PaddleBuf made of a list holds float32, "
                "one made of an array what that holds"
            )
        return found[:count].reshape(self.shape).copy()


class ZeroCopyTensor:
    """An input or output of a predictor that persists between runs, for ``zero_copy_run``.

    Args:
        name: name of the variable.
        output: whether it is an output, which cannot be set.

    Example:
        >>> import tempfile
        >>> import dpexec as fluid, numpy as np
        >>> main = fluid.Program()
        >>> with fluid.program_guard(main):
        ...     y = fluid.layers.scale(fluid.data("x", [None, 2]), 2.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     _ = fluid.io.save_inference_model(folder, ["x"], [y], exe, main)
        ...     config = fluid.core.AnalysisConfig(folder)
        ...     config.switch_use_feed_fetch_ops(False)
        ...     predictor = fluid.core.create_paddle_predictor(config)
        >>> predictor.get_input_tensor("x").copy_from_cpu(np.array([[1.0, 2.0]], "float32"))
        >>> _ = predictor.zero_copy_run()
        >>> predictor.get_output_tensor(predictor.get_output_names()[0]).copy_to_cpu()
        array([[2., 4.]], dtype=float32)
    """

    def __init__(self, name: str, output: bool) -> None:
        self._name, self._output = name, output
        self._array: Array | None = None
        self._dims = [0]
        self._lod: list[list[int]] = []

    def reshape(self, shape: Sequence[int]) -> None:
        """Set the shape of an input; arrays copied later replace it.

        Raises:
            EnforceNotMet: the tensor is an output.
        """
        if self._output:
            raise EnforceNotMet(f"output {self._name} cannot be reshaped, it is read-only")
        self._dims = list(shape)
        if self._array is not None:
            fits = self._array.size == math.prod(shape)
            self._array = self._array.reshape(self._dims) if fits else None

    def copy_from_cpu(self, data: Any) -> None:
        """Copy an array to an input.

        Raises:
            TypeError: its type is not float32, int32 or int64.
        """
        plain = type(data) is np.ndarray and data.dtype in _FROM_NUMPY
        self._array = np.array(data, order="C") if plain else np.array(_accepted(data))
        self._dims = list(self._array.shape)

    def copy_to_cpu(self) -> Array:
        """A copy as an array.

        Raises:
            EnforceNotMet: there is no value yet.
        """
        return self._value().copy()

    def set_lod(self, lod: Levels) -> None:
        """Set the offsets of sequences, per level; checked when the predictor runs."""
        self._lod = [list(level) for level in lod]

    def lod(self) -> list[list[int]]:
        """Offsets of sequences, per level."""
        return [list(level) for level in self._lod]

    def shape(self) -> list[int]:
        """The dimensions; ``[0]`` while unknown."""
        return list(self._dims)

    def type(self) -> PaddleDType:
        """The element type.

        Raises:
            EnforceNotMet: there is no value yet.
        """
        return _kind(self._value(), self._name)

    def _value(self) -> Array:
        if self._array is None:
            raise EnforceNotMet(f"variable {self._name} has no value yet")
        return self._array

    def _store(self, value: Array | LoDTensor) -> None:
        """Store the result of a run."""
        self._array, self._lod = _parts(value)
        self._dims = list(self._array.shape)


@explained
def paddle_dtype_size(dtype: PaddleDType) -> int:
    """The number of bytes of an element.

    Args:
        dtype: the element type.

    Returns:
        4 for FLOAT32, for instance.

    Raises:
        TypeError: ``dtype`` is no ``PaddleDType``.

    Example:
        >>> from dpexec import core
        >>> core.paddle_dtype_size(core.PaddleDType.FLOAT32)  # bytes
        4
    """
    return _TO_NUMPY[dtype].itemsize


@explained
def paddle_tensor_to_bytes(tensor: PaddleTensor) -> bytes:
    """Serialise a tensor in the format of Paddle's ``PaddleTensor`` files.

    The format: version, name, levels of offsets, dimensions, type and elements; fields of variable
    length are preceded by their length. Source: ``SerializePDTensorToBytes`` of Paddle 1.8.

    Args:
        tensor: the tensor, with its name.

    Returns:
        The file's content.

    Raises:
        TypeError: ``tensor`` is no ``PaddleTensor``.

    Example:
        >>> from dpexec import core
        >>> import numpy as np
        >>> tensor = core.PaddleTensor(np.ones([2, 3], "float32"), name="x")
        >>> written = core.paddle_tensor_to_bytes(tensor)
        >>> len(written), written.endswith(np.ones(6, "float32").tobytes())
        (73, True)
    """
    name = tensor.name.encode()
    parts = [struct.pack("<iQ", 0, len(name)), name, struct.pack("<Q", len(tensor.lod))]
    for level in tensor.lod:
        parts.append(struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level))
    dims = struct.pack(f"<Q{len(tensor.shape)}i", len(tensor.shape), *tensor.shape)
    elements = tensor.as_ndarray().tobytes()
    return b"".join([*parts, dims, struct.pack("<iQ", tensor.dtype, len(elements)), elements])
