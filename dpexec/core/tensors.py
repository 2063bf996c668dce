"""The values that variables hold: ``LoDTensor`` and ``SelectedRows``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.core.lod import Lod
from dpexec.core.places import CPUPlace, Place, array_module, on_device
from dpexec.core.runs import add_runs
from dpexec.errors import EnforceNotMet

__all__ = ["LoDTensor", "LoDTensorArray", "SelectedRows", "Tensor"]

_clock = itertools.count(1)
last_write = 0
"""Time of the latest write through a public method, so that a runtime that holds copies can tell
with one comparison that none of them is out of date."""
moves = 0
"""How often a tensor got another array, so that whoever knows where arrays lie can tell with one
comparison that they still do."""


def tick() -> int:
    """The time of a write that happens now."""
    global last_write
    last_write = next(_clock)
    return last_write


def moved() -> None:
    """Note that a variable has its value elsewhere now."""
    global moves
    moves += 1


_CPP_NAMES = {
    "bool": "bool",
    "float16": "::paddle::platform::float16",
    "float32": "float",
    "float64": "double",
    "int32": "int",
}


class LoDTensor:
    """A dense array with optional level-of-detail offsets.

    ``array`` is None until something was stored. ``version`` grows with every write from outside
    a run; runtimes that replicate a tensor compare it to notice that their copies are stale.
    """

    __slots__ = ("_array", "_dims", "_lod", "_source", "place", "version")

    def __init__(self) -> None:
        self._array: Any = None
        self._dims = [0]
        self._lod: list[list[int]] = []
        self.place: Place = CPUPlace()
        self._source: Callable[[], Any] | None = None
        self.version = 0

    @property
    def array(self) -> Any:
        """The NumPy or CuPy array, shared with the runtime: treat it as read-only."""
        if self._source is not None:
            self.array = self._source()
        return self._array

    @array.setter
    def array(self, value: Any) -> None:
        self._array, self._source = value, None
        moved()

    @property
    def form(self) -> Any:
        """Shape and type; None while nothing is stored, or is yet to be delivered."""
        return None if self._array is None else (self._array.shape, self._array.dtype)

    def defer(self, source: Callable[[], Any]) -> None:
        """Let ``source`` deliver the array when it is first read (state kept on a cluster)."""
        self._array, self._source = None, source
        moved()

    def touch(self) -> None:
        """Mark the value as written from outside the runtime that replicates it."""
        self.version = tick()

    def set(self, array: Any, place: Place | None = None, zero_copy: bool = False) -> None:
        """Store a copy of an array.

        Args:
            array: anything ``numpy.asarray`` takes.
            place: where the copy lives; the CPU by default.
            zero_copy: accepted for fluid's sake; a copy is always made.

        Raises:
            TypeError: the element type has no tensor type in fluid.
        """
        place = place or CPUPlace()
        if isinstance(array, LoDTensor):
            array = array.array
        host = np.array(array, order="C")
        as_var_type(host.dtype)
        with on_device(place):
            self.array = array_module(place).asarray(host)
        self.place = place
        self.touch()

    def shape(self) -> list[int]:
        """The dimensions; ``[0]`` while nothing is stored."""
        return list(self._dims) if self.array is None else list(self.array.shape)

    def lod(self) -> list[list[int]]:
        """Offsets per level: ``[[0, 2, 5]]`` for sequences of lengths 2 and 3."""
        return [list(level) for level in self._lod]

    def set_lod(self, lod: Sequence[Sequence[int]]) -> None:
        """Set the offsets per level.

        Raises:
            EnforceNotMet: they are no offsets of sequences, or end elsewhere than the tensor.
        """
        self._set_lod(Lod(lod))

    def recursive_sequence_lengths(self) -> list[list[int]]:
        """Lengths per level: ``[[2, 3]]`` for offsets ``[[0, 2, 5]]``."""
        return [[b - a for a, b in itertools.pairwise(level)] for level in self._lod]

    def set_recursive_sequence_lengths(self, lengths: Sequence[Sequence[int]]) -> None:
        """Set the lengths per level.

        Raises:
            EnforceNotMet: they do not add up to the number of rows of the tensor.
        """
        self._set_lod(Lod.of_lengths(lengths))

    def _set_lod(self, lod: Lod) -> None:
        if self._is_initialized():
            lod.check((self.shape() or [1])[0])
        self._lod = lod.to_lists()

    def has_valid_recursive_sequence_lengths(self) -> bool:
        """Whether every level ends where the next one (at last, the data) has its length."""
        ends = [level[-1] for level in self._lod]
        sizes = [len(level) - 1 for level in self._lod[1:]] + [self.shape()[0]]
        return all(
            end == size and level[0] == 0
            for end, size, level in zip(ends, sizes, self._lod, strict=True)
        )

    # ---- memory and single elements, as C++ programs see them

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Say or change the dimensions."""
        self._dims = [int(dim) for dim in dims]
        if self.array is not None:
            self.array = self.array.reshape(self._dims)
            self.touch()

    def _mutable_data(self, place: Place, dtype: Any) -> int:
        """Make memory for the dimensions, filled with zeros, and return its address."""
        xp = array_module(place)
        self.array = xp.zeros(self.shape(), to_numpy(dtype))
        self.place = place
        self.touch()
        return int(self.array.ctypes.data if xp is np else self.array.data.ptr)

    def _alloc_float(self, place: Place) -> None:
        self._mutable_data(place, VarType.FP32)

    def _alloc_int(self, place: Place) -> None:
        self._mutable_data(place, VarType.INT32)

    def _get_float_element(self, offset: int) -> float:
        return float(self._floats(offset)[offset])

    def _set_float_element(self, offset: int, value: float) -> None:
        self._floats(offset)[offset] = value
        self.touch()

    def _floats(self, offset: int) -> Any:
        """The elements one after another, if they are float32 and reach to ``offset``."""
        array = self.array
        if array is None or array.dtype != np.float32 or not 0 <= offset < array.size:
            raise EnforceNotMet(
                f"element {offset} of a tensor of float32 numbers was asked for, but the tensor "
                f"has {self._dtype()} and dimensions {self.shape()}"
            )
        return array.reshape(-1)

    def _to_dlpack(self) -> Any:
        """A DLPack capsule that shares the memory."""
        return self.array.__dlpack__()

    def _dtype(self) -> VarType:
        return VarType.FP32 if self.array is None else as_var_type(self.array.dtype)

    def _place(self) -> Place:
        return self.place

    def _is_initialized(self) -> bool:
        return self._source is not None or self._array is not None

    def numpy(self) -> np.ndarray[Any, Any]:
        """A host view of the data.

        Raises:
            ValueError: nothing is stored.
        """
        array = self.array
        if array is None:
            raise ValueError("the tensor holds no data: it was never set nor computed")
        return array if isinstance(array, np.ndarray) else array.get()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        # A copy, as in fluid: no aliasing of state. Without data it is empty: programs that rename
        # variables of a scope copy their tensors, whether they have some or not.
        return np.array(self.numpy() if self._is_initialized() else (), dtype=dtype)

    def __len__(self) -> int:
        return self.shape()[0]

    def __str__(self) -> str:
        levels = "".join("{" + ", ".join(map(str, level)) + "}" for level in self._lod)
        head = f"\tlod: {{{levels}}}\n\tdim: "
        if not self._is_initialized():
            return f"{head}0\n\tlayout: NCHW\n\tdtype: undefined\n\tdata: []\n"
        array = self.numpy()
        dims = ", ".join(map(str, array.shape))
        data = " ".join(f"{value:g}" for value in array.ravel())
        dtype = _CPP_NAMES.get(array.dtype.name, f"{array.dtype.name}_t")
        return f"{head}{dims}\n\tlayout: NCHW\n\tdtype: {dtype}\n\tdata: [{data}]\n"

    __repr__ = __str__

    def __getitem__(self, rows: int | slice) -> LoDTensor:
        """Some rows as a tensor; a single one keeps its dimension, as in fluid."""
        array = self.numpy()
        if not isinstance(rows, slice):
            if not -len(array) <= rows < len(array):
                raise IndexError(f"row {rows} of a tensor of shape {self.shape()}")
            rows = slice(rows % len(array), rows % len(array) + 1)
        part = LoDTensor()
        part.array = array[rows].copy()
        return part


Tensor = LoDTensor


class LoDTensorArray(list[LoDTensor]):
    """A growing list of tensors."""


class SelectedRows:
    """Some rows of a tall matrix: what the gradient of a large embedding table is.

    Args:
        rows: row numbers, in any order, with repetitions.
        height: number of rows of the full matrix.
        value: array ``(len(rows), ...)``; repeated rows stand for the sum of their values.
    """

    __slots__ = ("_rows", "_tensor", "height_")

    def __init__(self, rows: Any = (), height: int = 0, value: Any = None) -> None:
        self._rows = rows if hasattr(rows, "dtype") else np.asarray(rows, dtype=np.int64)
        self.height_ = int(height)
        self._tensor = LoDTensor()
        self._tensor.array = value

    @property
    def row_array(self) -> Any:
        """The row numbers as an int64 array ``(n,)``."""
        return self._rows

    @property
    def value(self) -> Any:
        """The array ``(n, ...)`` of the rows."""
        return self._tensor.array

    @property
    def dtype(self) -> Any:
        """Element type of the rows."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the full matrix."""
        return (self.height_, *self.value.shape[1:])

    def rows(self) -> list[int]:
        """The row numbers as a list."""
        return [int(row) for row in self._rows]

    def set_rows(self, rows: Sequence[int]) -> None:
        """Replace the row numbers."""
        self._rows = np.asarray(rows, dtype=np.int64)

    def height(self) -> int:
        """Number of rows of the full matrix."""
        return self.height_

    def set_height(self, height: int) -> None:
        """Set the number of rows of the full matrix."""
        self.height_ = int(height)

    def get_tensor(self) -> LoDTensor:
        """The tensor of the rows' values."""
        return self._tensor

    def numel(self) -> int:
        """Number of elements that are stored."""
        return 0 if self.value is None else int(self.value.size)

    def sync_index(self) -> None:
        """Kept for fluid's sake: there is no separate index that could be out of step."""

    def to_dense(self, xp: Any = np) -> Any:
        """The full matrix, repeated rows added up in order."""
        dense = xp.zeros(self.shape, dtype=self.dtype)
        if xp is np:
            rows, value = self._sum_repeated()
            dense[rows] = value
        else:
            self.add_to(xp, dense)
        return dense

    def add_to(self, xp: Any, dense: Any, factor: Any = None) -> None:
        """Add the rows to a full matrix, repeated ones after they were added up in order.

        Args:
            xp: ``numpy`` or ``cupy``.
            dense: the matrix.
            factor: what the sums are multiplied with, an array of one element.
        """
        if xp is np:
            rows, value = self._sum_repeated()
            dense[rows] += value if factor is None else factor * value
        else:
            order, rows = self._sorted(xp)
            add_runs(xp, dense, rows, order, rows, self.value, factor)

    def merged(self, xp: Any = np) -> SelectedRows:
        """Equal content with sorted rows, each once; repetitions added in order of appearance.

        On a GPU there are as many rows as before, as the host does not know how many differ: the
        first of equal ones has their sum, the others are 0.
        """
        if xp is np:
            rows, value = self._sum_repeated()
        else:
            order, rows = self._sorted(xp)
            value = xp.zeros(self.value.shape, self.dtype)
            add_runs(xp, value, rows, order, xp.arange(rows.size), self.value)
        return SelectedRows(rows, self.height_, value)

    def totals(self, xp: Any = np) -> tuple[Any, Any]:
        """Sorted rows, and for each the sum of its values: what rows are to be set by.

        On a GPU, rows are there as often as before, each time with the same sum.
        """
        merged = self.merged(xp)
        rows, value = merged.row_array, merged.value
        return (rows, value) if xp is np else (rows, value[xp.searchsorted(rows, rows)])

    def _sorted(self, xp: Any) -> tuple[Any, Any]:
        """The order in which rows are sorted, repeated ones in order of appearance; and they."""
        order = xp.argsort(self._rows, kind="stable")
        return order, self._rows[order]

    def _sum_repeated(self) -> tuple[Any, Any]:
        """Sorted rows, each once, and their values: far faster than ``add.at``."""
        order, rows = self._sorted(np)
        value = self.value[order]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = rows[1:] != rows[:-1]
        starts = np.flatnonzero(first)
        if len(starts) == len(rows):
            return rows, value
        return rows[starts], np.add.reduceat(value, starts, axis=0)

    def __repr__(self) -> str:
        return f"SelectedRows(height={self.height_}, rows={self.rows()})"
