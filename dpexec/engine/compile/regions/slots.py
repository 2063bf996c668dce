"""Values of loops in slots, as machine code sees them.

:mod:`dpexec.engine.kernels.round_values` says what a slot is.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.arrays import Entry, LazyArray, StepArray, TensorArray
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, LoDRankTable
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.round_values import SLOT

__all__ = ["OFFSETS", "KeptRounds", "Places", "Unusual", "array_like", "form_of", "words_at"]

_Array = np.ndarray[Any, Any]
_Form = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]
Words = tuple[int, int, int, int]
"""A slot: address, number of rows, bytes of a row, number of the form."""

OFFSETS = 0
"""The form of offsets of sequences, of rank tables, and of arrays of tensors."""
_NOTHING = np.zeros(8, np.int64)
_SINGLE = np.dtype(np.float32)

_forms: list[_Form] = [(np.dtype(np.int64), (), ())]
_numbers: dict[_Form, int] = {}
_lock = threading.Lock()


class Unusual(Exception):
    """Values that only Python handles. This is a signal, not an error."""


def form_of(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Number of rows, bytes of a row, and number of the form of an array.

    Args:
        dtype: its type.
        shape: its shape. The axis behind an axis of 0 counts rows: such arrays stand for a shape.

    Raises:
        Unusual: it has no axis of rows.
    """
    axis = int(shape[:1] == (0,))
    if len(shape) <= axis:
        raise Unusual
    form = dtype, shape[:axis], shape[axis + 1 :]
    number = _numbers.get(form)
    if number is None:
        with _lock:
            number = _numbers.setdefault(form, 2 * len(_forms) + (dtype == _SINGLE))
            if number >> 1 == len(_forms):
                _forms.append(form)
    width = 0 if axis else dtype.itemsize
    for size in form[2]:
        width *= size
    return shape[axis], width, number


def array_like(rows: int, form: int) -> Any:
    """An array, or offsets, with numbers that mean nothing.

    Args:
        rows: number of rows.
        form: number of the form.
    """
    dtype, before, after = _forms[form >> 1]
    made = np.empty((*before, rows, *after), dtype)
    return Lod([made]) if form == OFFSETS else made


def words_at(place: int, count: int) -> _Array:
    """The words at an address.

    Args:
        place: their address.
        count: how many.
    """
    if not count:
        return np.zeros(0, np.int64)
    found = memoryview((ctypes.c_char * (8 * count)).from_address(place))
    return np.frombuffer(found, np.int64)


class Places:
    """Puts values into slots, and finds values for slots.

    Args:
        chunks: memory of the loop: address of the begin and the end, and bytes.
    """

    def __init__(self, chunks: Sequence[tuple[int, int, _Array]]) -> None:
        self._chunks = chunks
        self._outside: dict[int, _Array] = {}
        self._kept: list[Any] = []

    def words(self, value: Any) -> Words:
        """A slot for a value.

        Args:
            value: None for none.

        Raises:
            Unusual: code has no slot for it.
        """
        if isinstance(value, np.ndarray):
            return self._of_array(value)
        if value is None:
            return 0, 0, 0, OFFSETS
        if isinstance(value, TensorArray):
            return self._of_entries(value)
        if isinstance(value, Lod):
            if not value.levels:
                return address(_NOTHING), 0, 8, OFFSETS
            if len(value.levels) == 1:
                place, rows, width, _ = self._of_array(value.levels[0])
                return place, rows, width, OFFSETS
        if isinstance(value, LoDRankTable):
            running = np.array([*value.running, 0], np.int64)
            self._kept.append(running)
            return address(running), len(running) - 1, 8, OFFSETS
        raise Unusual

    def _of_array(self, array: _Array) -> Words:
        if not array.flags.c_contiguous:
            raise Unusual
        return self._hold(array), *form_of(array.dtype, array.shape)

    def _of_entries(self, array: TensorArray) -> Words:
        if isinstance(array, _Entries):
            self._kept.append(array)
            for chunk in array.places.arrays:
                self._hold(chunk)
            found = array.slots.copy()
        elif isinstance(array, StepArray) and array.whole.size:
            found = self._of_steps(array)
        else:
            found = np.zeros((len(array), SLOT), np.int64)
            for number, entry in enumerate(array):
                if entry is not None:
                    if entry[1]:
                        raise Unusual
                    found[number] = self._of_array(entry[0])
        self._kept.append(found)
        return address(found) or address(_NOTHING), len(found), len(found), OFFSETS

    def _of_steps(self, array: StepArray) -> _Array:
        place, _, width, form = self._of_array(array.whole)
        rows = np.array(array.rows, np.int64)
        found = np.empty((len(rows), SLOT), np.int64)
        found[:, 0] = place + width * (np.cumsum(rows) - rows)
        found[:, 1], found[:, 2], found[:, 3] = rows, width, form
        return found

    def _hold(self, array: _Array) -> int:
        """Keep an array in whose memory values may lie; returns its address."""
        place = address(array)
        known = self._outside.get(place)
        if known is None or known.nbytes < array.nbytes:
            self._outside[place] = array
        return place

    @property
    def arrays(self) -> list[_Array]:
        """All memory in which values may lie."""
        return [*self._outside.values(), *(chunk for _, _, chunk in self._chunks)]

    def array(self, slot: Sequence[int]) -> Any:
        """The array in a slot; None if there is none."""
        place, rows, width, form = slot
        if not place:
            return None
        dtype, before, after = _forms[form >> 1]
        shape = (*before, rows, *after)
        if not rows * width:
            return np.empty(shape, dtype)
        known = self._outside.get(place)
        if known is not None and known.shape == shape and known.dtype == dtype:
            return known
        for start, stop, chunk in self._chunks:
            if start <= place < stop:
                made: _Array = np.ndarray(shape, dtype, chunk, place - start)
                return made
        for start, outside in self._outside.items():
            if start <= place < start + outside.nbytes:
                whole = outside.reshape(-1).view(np.uint8)
                return np.ndarray(shape, dtype, whole, place - start)
        raise RuntimeError("a value of a loop lies nowhere")

    def stacked(self, slot: Sequence[int], count: int) -> Any:
        """An array of arrays that lie one after another; None if there is none.

        Args:
            slot: the slot of the first one.
            count: how many.
        """
        if not slot[0]:
            return None
        dtype, before, after = _forms[slot[3] >> 1]
        number = form_of(dtype, (count, *before, slot[1], *after))[2]
        return self.array((slot[0], count, slot[1] * slot[2], number))

    def offsets(self, slot: Sequence[int]) -> Lod:
        """The offsets in a slot."""
        return Lod([self.array(slot)]) if slot[1] else NO_SEQUENCES

    def entries(self, slot: Sequence[int]) -> TensorArray:
        """The array of tensors in a slot."""
        place, count, _, _ = slot
        if not count:
            return TensorArray()
        return _Entries(words_at(place, SLOT * count).reshape(-1, SLOT).copy(), self)


class _Entries(LazyArray):
    """An array of tensors that a loop made.

    Args:
        slots: the slots of the entries.
        places: where they lie.
    """

    __slots__ = ("places", "slots")

    def __init__(self, slots: _Array, places: Places) -> None:
        super().__init__()
        self.slots, self.places = slots, places

    def _made(self) -> list[Entry | None]:
        return [*map(self._entry, self.slots.tolist())]

    def _entry(self, slot: Sequence[int]) -> Entry | None:
        array = self.places.array(slot)
        return None if array is None else (array, NO_SEQUENCES)

    def entry(self, index: int) -> Entry | None:
        """See :meth:`TensorArray.entry`."""
        return self._entry(self.slots[index].tolist()) if 0 <= index < len(self.slots) else None

    def joined(self, rows: Sequence[int]) -> Any:
        """See :meth:`TensorArray.joined`."""
        slots: list[list[int]] = self.slots.tolist()
        if [slot[1] for slot in slots] != rows or not all(slot[0] for slot in slots):
            return None
        _, _, width, form = slots[0]
        if any(slot[3] != form for slot in slots) or not width:
            return None
        made = array_like(sum(rows), form)
        to = address(made)
        for place, count, *_ in slots:
            ctypes.memmove(to, place, count * width)
            to += count * width
        return made

    def __len__(self) -> int:
        return len(self.slots)


class KeptRounds(Sequence[Mapping[str, Any]]):
    """What gradients need of the rounds of a loop.

    Args:
        names: of the values.
        slots: int64 ``(rounds, names, words)``.
        places: where the values lie.
        backwards: whether the last step came first.
    """

    def __init__(
        self, names: Sequence[str], slots: _Array, places: Places, backwards: bool
    ) -> None:
        self.names, self.slots, self.places = names, slots, places
        self.backwards = backwards

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, step: Any) -> Any:
        """The values of a step, by name."""
        slots = self.slots[::-1] if self.backwards else self.slots
        pairs = zip(self.names, slots[step].tolist(), strict=True)
        found = ((name, self._value(name, slot)) for name, slot in pairs)
        return {name: value for name, value in found if value is not None}

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (self[step] for step in range(len(self)))

    def __repr__(self) -> str:
        return f"KeptRounds({len(self)} rounds of {', '.join(self.names)})"

    def _value(self, name: str, slot: Sequence[int]) -> Any:
        is_lod = slot[3] == OFFSETS and slot[0]
        return self.places.offsets(slot) if is_lod else self.places.array(slot)
