"""Operands of code: values in buffers, and other arguments of kernels."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir.sizes import Counts

__all__ = ["Buffer", "Constant", "Offsets", "Packed", "Ragged", "Sized", "Sparse", "Value"]


@dataclass(eq=False)
class Buffer:
    """Memory that values lie in.

    Args:
        nbytes: size in bytes.
        first: number of the first call that uses it.
        last: number of the last call that uses it.
        lasting: whether it holds a value that is needed outside of the code.
    """

    nbytes: int
    first: int = -1
    last: int = -1
    lasting: bool = False

    def used_by(self, call: int) -> None:
        """Note a call that uses it.

        Args:
            call: its number.
        """
        self.first = call if self.first < 0 else self.first
        self.last = call


@dataclass(eq=False)
class Value:
    """An array that code works on.

    Args:
        shape: all dimensions.
        dtype: element type.
        buffer: its memory; None for an array that is passed to the run.
        name: the variable's name; ``""`` for scratch memory.
        channels_last: whether axis 1 comes last in memory.
        source: for a copy that is still to be made, the same value in the other layout.
        part: for an array of a :class:`Sparse`, the name of its field; else empty.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffer: Buffer | None = None
    name: str = ""
    channels_last: bool = False
    source: Value | None = None
    part: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    @property
    def has_planes(self) -> bool:
        """Whether channels-last is another order than that of the shape."""
        return len(self.shape) > 2 and self.shape[1] > 1 and math.prod(self.shape[2:]) > 1

    @property
    def parts(self) -> tuple[Value, ...]:
        """The arrays that it consists of: itself."""
        return (self,)


@dataclass(eq=False)
class Offsets(Value):
    """Offsets of sequences of one level that code computes; outside of code they are a ``Lod``."""


@dataclass(eq=False)
class Sparse:
    """Some rows of a tall matrix (``SelectedRows``): three arrays.

    Args:
        height: rows of the full matrix.
        rows: row numbers, int64, with room for the most rows that there can be.
        value: the rows, with as much room.
        count: int64 ``(1,)``, the number of rows.
        name: of the variable; ``""`` for scratch memory.
    """

    height: int
    rows: Value
    value: Value
    count: Value
    name: str = ""

    @classmethod
    def like(
        cls, shape: tuple[int, ...], dtype: Any, room: int, name: str = "", own: bool = True
    ) -> Sparse:
        """Rows of a matrix of some shape.

        Args:
            shape: of the full matrix.
            dtype: element type.
            room: the most rows that there can be.
            name: of the variable.
            own: whether it gets buffers; if not, its arrays are passed to the run.
        """
        rows = Value((room,), np.dtype(np.int64), None, name, part="rows")
        value = Value((room, *shape[1:]), np.dtype(dtype), None, name, part="value")
        number = Value((1,), np.dtype(np.int64), None, name, part="count")
        made = cls(shape[0], rows, value, number, name)
        if own:
            for part in made.parts:
                part.buffer = Buffer(part.nbytes)
        return made

    @property
    def parts(self) -> tuple[Value, ...]:
        """All arrays."""
        return self.rows, self.value, self.count

    @property
    def buffer(self) -> Buffer | None:
        """The buffer of one of its arrays, which it shares with no other value."""
        return self.count.buffer

    channels_last = has_planes = False

    @property
    def shape(self) -> tuple[int, ...]:
        """All dimensions of the full matrix."""
        return (self.height, *self.value.shape[1:])

    @property
    def room(self) -> int:
        """The most rows that there can be."""
        return self.rows.size

    @property
    def width(self) -> int:
        """Elements of a row."""
        return math.prod(self.value.shape[1:])

    @property
    def size(self) -> int:
        """The most elements that there can be."""
        return self.value.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.value.dtype


@dataclass(eq=False)
class Ragged:
    """Rows of sequences of which only a run tells how many there are: two arrays.

    Outside of code it is one array, with as many rows as there are. A lowering that names its slot
    (``ragged``) makes room for it by :meth:`hold`, or reads its two arrays.

    Args:
        dtype: element type.
        name: of the variable.
        padded: whether it is ``(longest, sequences, ...)`` outside of code, with zeros behind
            sequences.
    """

    dtype: np.dtype[Any]
    name: str
    padded: bool = False
    value: Value = field(init=False)
    offsets: Value = field(init=False)

    channels_last = has_planes = False

    def hold(self, shape: tuple[int, ...], sequences: int, padded: bool = False) -> None:
        """Give it memory.

        Args:
            shape: with the most rows that there can be.
            sequences: how many there are.
            padded: see the class.
        """
        self.padded = padded
        self.value = Value(shape, self.dtype, None, self.name)
        self.offsets = Value((sequences + 1,), np.dtype(np.int64), None, self.name)
        for part in self.parts:
            part.buffer = Buffer(part.nbytes)

    @property
    def parts(self) -> tuple[Value, ...]:
        """All arrays."""
        return self.value, self.offsets

    @property
    def buffer(self) -> Buffer | None:
        """The buffer of one of its arrays, which it shares with no other value."""
        return self.offsets.buffer

    @property
    def shape(self) -> tuple[int, ...]:
        """All dimensions, with the most rows that there can be."""
        return self.value.shape

    @property
    def size(self) -> int:
        """The most elements that there can be."""
        return self.value.size

    def outside(self, rows: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any]) -> Any:
        """What it is outside of code.

        Args:
            rows: the array of rows.
            offsets: the array of offsets.
        """
        if not self.padded:
            return rows[: offsets[-1]]
        lengths = np.diff(offsets)
        made = np.zeros((lengths.max(initial=0), len(lengths), *rows.shape[1:]), rows.dtype)
        for sequence, (first, length) in enumerate(zip(offsets, lengths, strict=False)):
            made[:length, sequence] = rows[first : first + length]
        return made


class Constant:
    """Numbers that kernels read and that never change. ``int()`` is their address.

    Args:
        array: the numbers.
    """

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = np.ascontiguousarray(array)

    def __int__(self) -> int:
        return int(self.array.ctypes.data)


_packing = threading.Lock()


class Packed:
    """Variables whose elements nobody changes, in the layouts that kernels want.

    Args:
        kept: by name of a variable, what was made for it before; gets what is made now. Another
            array in the place of a variable is noticed, if the one before is alive until then.
        threads: how many may work on a call of a kernel.

    Attributes:
        awake: where kernels note when these threads had work last, for kernels that need no more
            threads unless they are awake.
    """

    def __init__(self, kept: Mapping[str, dict[Any, Any]], threads: int = 1) -> None:
        self.names, self.threads = kept.keys(), threads
        self.awake = Constant(np.zeros(1, np.int64))
        self._kept = kept

    def of(self, name: str, layout: Any, scales: Any = None) -> tuple[Constant, Constant]:
        """Where a variable lies in a layout, for the code of all sizes of batches.

        Args:
            name: of the variable.
            layout: the layout, of oneDNN.
            scales: the factors that its elements were multiplied by, which can be hashed.

        Returns:
            Two words, the address that it was brought there from, 0 at first, and whether a thread
            is bringing it; and the memory.
        """
        with _packing:  # predictors of a model may be compiled in several threads
            known: list[tuple[Any, tuple[Constant, Constant]]]
            known = self._kept[name].setdefault(scales, [])
            for other, found in known:
                if layout.is_like(other):
                    return found
            made = Constant(np.zeros(2, np.int64)), Constant(np.empty(layout.nbytes, np.uint8))
            known.append((layout, made))
            return made


class Sized:
    """An argument that is computed for every piece of code, when memory and sizes are known.

    Args:
        make: called with the rows of the device's batch. ``int()`` of its result is the argument,
            which is valid while the result is alive.
    """

    def __init__(self, make: Callable[[Counts], Any]) -> None:
        self.at = make
