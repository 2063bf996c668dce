"""Steps like an earlier one: only the differences and the arrays are sent to members.

Members remember the form of a single step by a number: the binding, the parts of the devices, and
names and types of their feeds. Sizes are sent with each step. So most orders are a few numbers and
the arrays, without pickling, even if every batch has other sizes. Outcomes have forms, too
(:mod:`.gang_messages`).
"""

from __future__ import annotations

import itertools
import operator
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from dpexec.engine.compile.regions.env import Shard
from dpexec.engine.core.lod import Lod
from dpexec.engine.exchange.channels import LINE
from dpexec.engine.exchange.messages import PADDING, bytes_of

if TYPE_CHECKING:
    from dpexec.engine.cluster.messages import GangStep

__all__ = [
    "KNOWN",
    "ORDER",
    "ArrayForm",
    "Remembered",
    "RepeatedOrder",
    "StepForm",
    "in_lines",
    "kind_of",
    "known_step",
]

_FORMS = 16
"""How many forms a process remembers; they are numbered from 1."""
KNOWN = 3
"""Kind of messages that say which step is complete: the client knows all its outcomes."""
known_step = struct.Struct("<IIq")
"""Of such a message: no form, the kind, and the number of the step."""
ORDER = 1
"""The kind of a message of a known form that is an order."""
kind_of = struct.Struct("<II").unpack_from
"""The form and the kind of a message. The kind is 0 if the message was sent in full.

Such a message begins with a small number of 8 bytes, whose upper half is 0."""

_HEAD = struct.Struct("<IIqqqqqq")  # form, kind, base, step, run, entropy, batch, batches over
_LASTING = operator.attrgetter("inner", "rings")
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
                    buffers.append(PADDING[: -array.nbytes % LINE])
        return sizes, buffers

    def values(self, sizes: Sequence[int], data: memoryview, at: int) -> dict[int, dict[str, Any]]:
        """The arrays in a message, as views of its memory.

        Args:
            sizes: see :meth:`told`.
            data: the message.
            at: where the arrays begin in it.
        """
        found: dict[int, dict[str, Any]] = {}
        first = 0
        for device, parts in zip(self.devices, self._parts, strict=True):
            own = found[device] = {}
            for name, dtype, dims, how in parts:
                shape, first = sizes[first : first + dims], first + dims
                arrays = []
                for each in (shape,) if how is np.ndarray else [(size,) for size in shape]:
                    array = np.ndarray(each, dtype, data, at)
                    at += array.nbytes + -array.nbytes % LINE
                    arrays.append(array)
                own[name] = arrays[0] if how is np.ndarray else Lod(arrays)
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
        if [*map(len, rows)] != self._rows or [*map(_LASTING, shards)] != self._lasting:
            return None
        found = self.arrays.told(values)
        if found is None:
            return None
        sizes, buffers = ([], []) if batch else found
        ints = [*itertools.chain.from_iterable(rows)]
        floats: list[float] = []
        for shard in shards:
            ints += shard.first_sample, shard.samples
            floats += shard.weight, shard.share
        one = shards[0]
        head = _HEAD.pack(form, ORDER, base, number, one.run, one.entropy, batch, len(over))
        kinds = f"<{self._all}{len(sizes) + len(over)}q"
        return in_lines(head + struct.pack(kinds, *ints, *floats, *sizes, *over), buffers)

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
        numbers = struct.unpack_from(f"<{self._all}{sizes + over}q", data, _HEAD.size)
        like, at, rows = self._like, 0, []
        for count in self._rows:
            rows.append(numbers[at : at + count])
            at += count
        more, shards = self._ints, {}
        for device, (inner, rings) in zip(like.shards, self._lasting, strict=True):
            first, samples, weight, share = *numbers[at : at + 2], *numbers[more : more + 2]
            shards[device] = Shard(run, entropy, first, samples, weight, inner, share, rings)
            at, more = at + 2, more + 2
        if batch:
            values = batches[batch].values
        else:
            end = _HEAD.size + 8 * len(numbers)
            values = self.arrays.values(numbers[more:], data, end + -end % LINE)
        step = type(like)(like.binding, tuple(rows), number, values, shards, like.persistable)
        return RepeatedOrder(base, step), numbers[len(numbers) - over :]


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
