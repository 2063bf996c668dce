"""The values that variables hold: ``LoDTensor``, and arrays of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.lod import Lod
from dpexec.engine.core.places import CPUPlace, Place, array_module, on_device

__all__ = ["LoDTensor", "LoDTensorArray", "Tensor"]

clock = itertools.count(1)
"""Counts writes; the latest number given out is in ``last_write``."""
last_write = 0
"""Time of the latest write to a variable through a public method, so that a runtime that holds
copies can tell with one comparison that none of them is out of date."""
moves = 0
"""How often a variable got another array: code that remembers where arrays lie can tell with one
comparison that they still do."""


def tick() -> int:
    """The time of a write that happens now."""
    global last_write
    last_write = next(clock)
    return last_write


def moved() -> None:
    """Note that a variable's value lies in another array now."""
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
    """A dense array, and optionally the offsets at which its sequences begin (level of detail).

    ``np.array(tensor)`` gives the elements, :meth:`set` writes them; :meth:`lod` has the offsets,
    :meth:`recursive_sequence_lengths` the lengths of the sequences.

    Attributes:
        array: the elements; None until some are stored.
        version: grows with every write from outside a run, which tells runtimes that their copies
            are stale.
        in_scope: whether it is the value of a variable of a scope; runtimes copy no other tensors.
        origin: the loader that it came from, if any.
        lent: whether other code may write to its memory unnoticed.

    See Also:
        :func:`~dpexec.create_lod_tensor`: makes one.
        :func:`~dpexec.create_random_int_lodtensor`: makes one of random numbers.
        :class:`~dpexec.LoDTensorArray`: a list of them.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> tensor = fluid.LoDTensor()
        >>> tensor.set(np.arange(5.0), fluid.CPUPlace())
        >>> tensor.set_lod([[0, 2, 5]])
        >>> tensor.recursive_sequence_lengths()
        [[2, 3]]
    """

    __slots__ = (
        *("_array", "_coming", "_dims", "_lod", "_source"),
        *("in_scope", "lent", "origin", "place", "version"),
    )

    def __init__(self) -> None:
        self._array: Any = None
        self._coming: Any = None  # the form of a deferred value
        self._dims = [0]
        self._lod: list[list[int]] = []
        self.place: Place = CPUPlace()
        self._source: Callable[[], Any] | None = None
        self.in_scope = self.lent = False
        self.origin: Any = None
        self.version = 0

    @property
    def array(self) -> Any:
        """The NumPy or CuPy array, shared with the runtime: treat it as read-only."""
        return self._array if self._source is None else self.bring()

    @array.setter
    def array(self, value: Any) -> None:
        self._array, self._source = value, None
        if self.in_scope:
            moved()

    @property
    def form(self) -> Any:
        """Shape and type, without fetching; None if nothing is stored, or only its source knows."""
        if self._source is not None:
            return self._coming
        return None if self._array is None else (self._array.shape, self._array.dtype)

    def defer(
        self, source: Callable[[], Any], place: Place | None = None, form: Any = None
    ) -> None:
        """Let ``source`` deliver the array when it is first read (state kept on a cluster).

        Args:
            source: delivers it. Several with an equal method ``together`` deliver a list at once.
            place: where it will lie; None: where the one before did.
            form: shape and type that it will have; None: only its source can tell.
        """
        self._array, self._source, self._coming = None, source, form
        self.place = place or self.place
        if self.in_scope:
            moved()

    @property
    def is_deferred(self) -> bool:
        """Whether the array is yet to be delivered."""
        return self._source is not None

    @property
    def source(self) -> Callable[[], Any] | None:
        """Delivers the array; None if it is here."""
        return self._source

    def bring(self) -> Any:
        """Fetch the array from its source, if the value is still deferred; returns it."""
        source, version = self._source, self.version
        if source is None:
            return self._array
        found = source()
        self.take(found, source, version)
        return found

    def take(self, array: Any, source: Callable[[], Any], version: int) -> None:
        """Hold what ``source`` delivered, unless a run has written since the given version."""
        if self._source is source and self.version == version:
            self.array = array
            if self.version != version:  # just now
                self._source = source

    def touch(self) -> None:
        """Mark the value as written from outside the runtime that replicates it."""
        if self.in_scope:
            self.version = tick()

    def set(self, array: Any, place: Place | None = None, zero_copy: bool = False) -> None:
        """Store a copy of an array.

        Args:
            array: anything ``numpy.asarray`` takes.
            place: where the copy lives; the CPU by default.
            zero_copy: accepted for fluid's sake; a copy is always made.

        Raises:
            TypeError: the element type has no tensor type in fluid, or the place is none.
        """
        place = CPUPlace() if place is None else place
        if not isinstance(place, Place):
            raise TypeError(f"a tensor lives on a place such as CPUPlace(), not on {place!r}")
        if isinstance(array, LoDTensor):
            array = array.array
        host = np.array(array, order="C")
        as_var_type(host.dtype)
        with on_device(place):
            self.array = array_module(place).asarray(host)
        self.place = place
        self.touch()

    def _share_data_with(self, other: LoDTensor) -> None:
        """Hold the array that another tensor holds."""
        self.array, self.place = other.array, other.place
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
            TypeError: they are the numbers of one level, not a list of levels.
        """
        if any(isinstance(level, (int, np.integer)) for level in lengths):
            problem = f"lengths are a list for each level, as in [[2, 1]], but received {lengths}"
            raise see("lengths-that-do-not-fit", TypeError(problem))
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
            for end, size, level in zip(ends, sizes, self._lod, strict=False)  # or no level
        )

    # ---- memory and single elements, as C++ programs see them

    def _get_dims(self) -> list[int]:
        """The dimensions; ``[0]`` while nothing is stored."""
        return self.shape()

    def _clear(self) -> None:
        """Drop the memory; the dimensions remain."""
        self._dims = self.shape()
        self.array = None
        self.touch()

    def _set_dims(self, dims: Sequence[int]) -> None:
        """Set the dimensions."""
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
        return float(self._elements(offset, "float32")[offset])

    def _set_float_element(self, offset: int, value: float) -> None:
        self._elements(offset, "float32")[offset] = value
        self.touch()

    def _get_double_element(self, offset: int) -> float:
        return float(self._elements(offset, "float64")[offset])

    def _set_double_element(self, offset: int, value: float) -> None:
        self._elements(offset, "float64")[offset] = value
        self.touch()

    def _elements(self, offset: int, dtype: str) -> Any:
        """The elements one after another, if they have a type and reach to ``offset``."""
        self.lent, array = True, self.array
        if array is None or array.dtype != dtype or not 0 <= offset < array.size:
            raise EnforceNotMet(
                f"element {offset} of a tensor of {dtype} numbers was asked for, but the tensor "
                f"has {self._dtype()} and dimensions {self.shape()}"
            )
        return array.reshape(-1)

    def _to_dlpack(self) -> Any:
        """A DLPack capsule that shares the memory."""
        self.lent = True
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
        self.lent = True
        return self.on_host()

    def on_host(self) -> np.ndarray[Any, Any]:
        """The data on the host, for code that only reads it; see :meth:`numpy`."""
        array = self.array
        if array is None:
            raise ValueError("the tensor holds no data: it was never set nor computed")
        return array if isinstance(array, np.ndarray) else array.get()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        # A copy, as in fluid: no aliasing of state. Without data it is empty: programs that rename
        # variables of a scope copy their tensors, whether they have some or not.
        return np.array(self.on_host() if self._is_initialized() else (), dtype=dtype)

    def __reduce__(self) -> Any:
        """Pickle it as a tensor of no scope; a deferred value is fetched first."""
        return _restored, (self.array, self._lod, self.place)

    def __len__(self) -> int:
        return self.shape()[0]

    def __str__(self) -> str:
        levels = "".join("{" + ", ".join(map(str, level)) + "}" for level in self._lod)
        head = f"\tlod: {{{levels}}}\n\tdim: "
        if not self._is_initialized():
            return f"{head}0\n\tlayout: NCHW\n\tdtype: undefined\n\tdata: []\n"
        array = self.on_host()
        dims = ", ".join(map(str, array.shape))
        data = " ".join(f"{value:g}" for value in array.ravel())
        dtype = _CPP_NAMES.get(array.dtype.name, f"{array.dtype.name}_t")
        return f"{head}{dims}\n\tlayout: NCHW\n\tdtype: {dtype}\n\tdata: [{data}]\n"

    __repr__ = __str__

    def __getitem__(self, index: int | slice | tuple[int | slice, ...]) -> LoDTensor:
        """A part as a tensor without sequences; single rows keep their dimension, as in fluid.

        Args:
            index: integers and slices, for the first dimensions.

        Raises:
            IndexError: there is nothing there, or more is indexed than there are dimensions.
        """
        array = self.on_host()
        items = index if isinstance(index, tuple) else (index,)
        if len(items) > array.ndim:
            raise IndexError(f"{len(items)} indices of a tensor of shape {self.shape()}")
        found = zip(items, array.shape, strict=False)
        part = LoDTensor()
        part.array = array[tuple(self._section(item, size) for item, size in found)].copy()
        return part

    def _section(self, item: Any, size: int) -> slice:
        if isinstance(item, slice):
            return item
        if not isinstance(item, (int, np.integer)) or not -size <= item < size:
            raise IndexError(f"index {item!r} of a tensor of shape {self.shape()}")
        return slice(item % size, item % size + 1)


Tensor = LoDTensor


def _restored(array: Any, lod: list[list[int]], place: Place) -> LoDTensor:
    made = LoDTensor()
    made.array, made._lod, made.place = array, lod, place
    return made


class LoDTensorArray(list[LoDTensor]):
    """A growing list of tensors.

    Args:
        iterable: the first tensors.

    See Also:
        :class:`~dpexec.LoDTensor`: an array with sequences.
        :func:`~dpexec.create_lod_tensor`: makes one.
        :func:`~dpexec.create_random_int_lodtensor`: makes one of random numbers.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> tensor = fluid.LoDTensor()
        >>> tensor.set(np.array([1.0, 2.0]), fluid.CPUPlace())
        >>> array = fluid.LoDTensorArray()
        >>> array.append(tensor)
        >>> len(array), np.array(array[0])
        (1, array([1., 2.]))
    """
