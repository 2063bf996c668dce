"""Steps like an earlier one: only the differences and the arrays are sent to members.

Members remember the form of a single step by a number: the binding, the parts of the devices, and
names and types of their feeds. Sizes are sent with each step. So most orders are a few numbers and
the arrays, without pickling, even if every batch has other sizes. Outcomes have forms, too
(:mod:`.gang_messages`).
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.lod import Lod
from dpexec.engine.exchange.channels import LINE
from dpexec.engine.exchange.messages import PADDING, bytes_of

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import GangStep

__all__ = [
    "ORDER",
    "ArrayForm",
    "Remembered",
    "RepeatedOrder",
    "StepForm",
    "in_lines",
    "kind_of",
]

_FORMS = 16
"""How many forms a process remembers; they are numbered from 1."""
ORDER = 1
"""The kind of a message of a known form that is an order."""
kind_of = struct.Struct("<II").unpack_from
"""The form and the kind of a message. The kind is 0 if the message was sent in full.

Such a message begins with a small number of 8 bytes, whose upper half is 0."""

_HEAD = struct.Struct("<IIqqqqqq")  # form, kind, base, step, run, entropy, batch, batches over
_LASTING = operator.attrgetter("inner", "rings")
_EXTENT = operator.attrgetter("first_sample", "samples", "weight", "share")
_CAST = "biufc"  # kinds of types whose arrays Python can cast to bytes without a copy

_T = TypeVar("_T")


class _Ahead(Protocol):
    """A batch that has come ahead, see :class:`.gang_messages.Batch`."""

    @property
    def values(self) -> Mapping[int, Mapping[str, Any]]:
        """The feeds, by device and name."""


class Remembered(Generic[_T]):
    """Objects that are known by small numbers from 1; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[int, _T]] = {}  # the latest added is last

    def get(self, key: Any) -> tuple[int, _T] | None:
        """The number and the object of a key; None if there is none."""
        return self._known.get(key)

    def add(self, key: Any, known: _T) -> int:
        """Remember an object, in place of an earlier one of the key; returns its number."""
        before = self._known.pop(key, None)
        if before is None and len(self._known) == _FORMS:
            before = self._known.pop(next(iter(self._known)))
        number = len(self._known) + 1 if before is None else before[0]
        self._known[key] = number, known
        return number


class _Place(NamedTuple):
    """A value in a message: its arrays' shapes, and where they begin behind the first one."""

    device: int
    name: str
    dtype: Any
    arrays: Sequence[tuple[tuple[int, ...], int]]
    is_plain: bool


class ArrayForm:
    """Names and types of some arrays, by device; sizes are open.

    Args:
        values: arrays and offsets of sequences, by device and name.

    Raises:
        TypeError: a value is neither of them.
    """

    def __init__(self, values: Mapping[int, Mapping[str, Any]]) -> None:
        self.devices = list(values)
        self._parts = [
            [(name, *_kind(value)) for name, value in found.items()] for found in values.values()
        ]
        self.sizes = sum(dims for found in self._parts for _, _, dims, _ in found)
        """How many numbers give all their sizes."""
        self._laid_out: Sequence[int] | None = None
        self._places: list[_Place] = []  # for these sizes

    def told(self, values: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[Any]] | None:
        """The sizes and the buffers of some arrays; None if they have another form.

        Args:
            values: the arrays by name, for each device.
        """
        sizes: list[int] = []
        buffers: list[Any] = []
        for found, parts in zip(values, self._parts, strict=True):
            if len(found) != len(parts):
                return None
            for (name, value), (known, dtype, dims, how) in zip(found.items(), parts, strict=True):
                kind: Any = type(value)
                if kind is not how or name != known:
                    return None
                shape = value.shape
                if len(shape) != dims or value.dtype != dtype:
                    return None
                sizes += shape
                for array in (value,) if how is np.ndarray else value.levels:
                    plain = array.size and array.flags.c_contiguous and dtype.kind in _CAST
                    buffers.append(array.data.cast("B") if plain else bytes_of(array).data)
                    if rest := -array.nbytes % LINE:
                        buffers.append(PADDING[:rest])
        return sizes, buffers

    def add(self, values: Sequence[Mapping[str, Any]], buffers: list[Any]) -> None:
        """Add the buffers of plain arrays of this form; in short, as most steps come through here.

        Args:
            values: the arrays by name, for each device.
            buffers: takes them.
        """
        for found in values:
            for array in found.values():
                plain = array.size and array.flags.c_contiguous and array.dtype.kind in _CAST
                buffers.append(array.data.cast("B") if plain else bytes_of(array).data)
                if rest := -array.nbytes % LINE:
                    buffers.append(PADDING[:rest])

    def values(self, sizes: Sequence[int], data: memoryview, at: int) -> dict[int, dict[str, Any]]:
        """The arrays in a message, as views of its memory.

        Args:
            sizes: see :meth:`told`.
            data: the message.
            at: where the arrays begin in it.
        """
        if sizes != self._laid_out:
            self._laid_out, self._places = sizes, self._lay_out(sizes)
        found: dict[int, dict[str, Any]] = {}
        for device in self.devices:
            found[device] = {}
        for device, name, dtype, arrays, is_plain in self._places:
            made = []
            for shape, place in arrays:
                made.append(np.ndarray(shape, dtype, data, at + place))
            found[device][name] = made[0] if is_plain else Lod(made)
        return found

    def _lay_out(self, sizes: Sequence[int]) -> list[_Place]:
        """Where the arrays lie behind each other."""
        found = []
        at = first = 0
        for device, parts in zip(self.devices, self._parts, strict=True):
            for name, dtype, dims, how in parts:
                shape, first = tuple(sizes[first : first + dims]), first + dims
                arrays = []
                for each in (shape,) if how is np.ndarray else [(size,) for size in shape]:
                    arrays.append((each, at))
                    nbytes = math.prod(each) * dtype.itemsize
                    at += nbytes + -nbytes % LINE
                found.append(_Place(device, name, dtype, arrays, how is np.ndarray))
        return found


def _kind(value: Any) -> tuple[Any, int, type]:
    """The type of a value's elements, its number of sizes, and its class."""
    if type(value) not in (np.ndarray, Lod) or value.dtype.hasobject:
        raise TypeError(f"{type(value).__name__} is no plain array")
    return value.dtype, len(value.shape), type(value)


def in_lines(head: bytes, buffers: Sequence[Any]) -> list[Any]:
    """The buffers of a message of a known form; arrays begin at a line of the cache."""
    return [head, PADDING[: -len(head) % LINE], *buffers]


class StepForm:
    """What client and member know of steps of one form.

    Args:
        step: one of these steps; its own ``values`` are ignored.
        values: its feeds, by device and name.

    Raises:
        TypeError: a feed is no plain array.
    """

    def __init__(self, step: GangStep, values: Mapping[int, Mapping[str, Any]]) -> None:
        self._like = step._replace(values={})
        self.arrays = ArrayForm({device: values[device] for device in step.shards})
        self._rows = [*map(len, step.rows)]
        self._lasting = [*map(_LASTING, step.shards.values())]
        devices = len(step.shards)
        self._ints = sum(self._rows) + 2 * devices
        self._all = f"{self._ints}q{2 * devices}d"
        self._told: tuple[Any, bytes] = (None, b"")  # the latest numbers, and their bytes
        self._heard: tuple[bytes | None, Any] = (None, None)  # likewise, on the member

    # ---- on the client

    def tell(
        self,
        told: tuple[int, int, int, int, Sequence[int]],
        rows: Sequence[Sequence[int]],
        shards: Sequence[Shard],
        values: Sequence[Mapping[str, Any]],
    ) -> list[Any] | None:
        """The buffers of an order for a step; None if the step has another form.

        Args:
            told: numbers of the form, the base, the step and the batch; batches that are over.
            rows: the numbers of rows of every device's batch.
            shards: the parts of the member's devices.
            values: the feeds of these devices.
        """
        form, base, number, batch, over = told
        buffers = self._fit(rows, shards, values, not batch)
        if buffers is None:
            return None
        one = shards[0]
        head = _HEAD.pack(form, ORDER, base, number, one.run, one.entropy, batch, len(over))
        rest = struct.pack(f"<{len(over)}q", *over) if over else b""
        return in_lines(head + self._told[1] + rest, buffers)

    def _fit(
        self,
        rows: Sequence[Sequence[int]],
        shards: Sequence[Shard],
        values: Sequence[Mapping[str, Any]],
        with_arrays: bool = True,
    ) -> list[Any] | None:
        """Pack a step's numbers; returns the buffers of its arrays, None if it does not fit."""
        if [*map(len, rows)] != self._rows or [*map(_LASTING, shards)] != self._lasting:
            return None
        found = self.arrays.told(values)
        if found is None:
            return None
        sizes, buffers = found if with_arrays else ([], [])
        numbers = rows, [*map(_EXTENT, shards)], sizes
        if numbers != self._told[0]:  # most steps are of the same sizes as the one before
            self._told = numbers, self._pack(*numbers)
        return buffers

    def telling(
        self,
        form: int,
        rows: Sequence[Sequence[int]],
        shards: Sequence[Shard],
        values: Sequence[Mapping[str, Any]],
    ) -> Callable[..., list[Any]] | None:
        """A function that makes orders for steps like one; None if it has another form.

        Args:
            form: the number of the form.
            rows: see :meth:`tell`.
            shards: see :meth:`tell`.
            values: the feeds of one of the steps; they have no sequences.

        Returns:
            A function of the base, the number of the step, run, entropy, and the feeds.
        """
        if self._fit(rows, shards, values) is None:
            return None
        packed, parts = self._told[1], self.arrays
        padding = PADDING[: -(_HEAD.size + len(packed)) % LINE]

        def tell(
            base: int, number: int, run: int, entropy: int, values: Sequence[Mapping[str, Any]]
        ) -> list[Any]:
            head = _HEAD.pack(form, ORDER, base, number, run, entropy, 0, 0)
            buffers = [head, packed, padding]
            parts.add(values, buffers)
            return buffers

        return tell

    def _pack(
        self,
        rows: Sequence[Sequence[int]],
        extents: Sequence[tuple[int, int, float, float]],
        sizes: Sequence[int],
    ) -> bytes:
        """The numbers of a step behind the head: rows, extents of the devices, sizes of arrays."""
        ints = [*itertools.chain.from_iterable(rows)]
        floats: list[float] = []
        for first, samples, weight, share in extents:
            ints += first, samples
            floats += weight, share
        return struct.pack(f"<{self._all}{len(sizes)}q", *ints, *floats, *sizes)

    # ---- on the member

    def order(
        self, data: memoryview, batches: Mapping[int, _Ahead]
    ) -> tuple[RepeatedOrder, Sequence[int]]:
        """The order in a message, and the numbers of batches that no later step names.

        Args:
            data: the message.
            batches: the batches that came before, by number.
        """
        _, _, base, number, run, entropy, batch, over = _HEAD.unpack_from(data)
        sizes = 0 if batch else self.arrays.sizes
        end = _HEAD.size + 8 * (self._ints + 2 * len(self._lasting) + sizes)
        packed = bytes(data[_HEAD.size : end])
        if packed != self._heard[0]:  # most steps are of the same sizes as the one before
            self._heard = packed, self._unpack(packed, sizes)
        rows, extents, shape = self._heard[1]
        shards = {
            device: Shard(run, entropy, first, samples, weight, inner, share, rings)
            for device, first, samples, weight, inner, share, rings in extents
        }
        gone = struct.unpack_from(f"<{over}q", data, end) if over else ()
        if batch:
            values = batches[batch].values
        else:
            end += 8 * over
            values = self.arrays.values(shape, data, end + -end % LINE)
        like = self._like
        step = type(like)(like.binding, rows, number, values, shards, like.persistable)
        return RepeatedOrder(base, step), gone

    def _unpack(self, packed: bytes, sizes: int) -> tuple[Any, Any, Sequence[int]]:
        """The reverse of :meth:`_pack`: rows, parts of :class:`Shard` by device, and sizes."""
        numbers = struct.unpack(f"<{self._all}{sizes}q", packed)
        at, rows = 0, []
        for count in self._rows:
            rows.append(numbers[at : at + count])
            at += count
        more, extents = self._ints, []
        for device, (inner, rings) in zip(self._like.shards, self._lasting, strict=True):
            first, samples, weight, share = *numbers[at : at + 2], *numbers[more : more + 2]
            extents.append((device, first, samples, weight, inner, share, rings))
            at, more = at + 2, more + 2
        return tuple(rows), extents, numbers[more:]


class RepeatedOrder:
    """An order for a single step of a known form, see :class:`.gang_messages.Order`.

    Args:
        base: number of the step before, whose values it starts from.
        step: the step.
    """

    new, kept = (), ()

    def __init__(self, base: int, step: GangStep) -> None:
        self.base, self._step = base, step
        self.first = self.last = step.number

    def each(self) -> Iterator[GangStep]:
        """The step."""
        return iter((self._step,))
