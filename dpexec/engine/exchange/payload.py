"""Values as bytes: dense arrays, and sparse ones as the ids and numbers of their rows.

A frame holds the numbers of rows of its sparse values, its dense arrays, and then ids and rows,
each padded to a line of the cache. Shapes and types are those of the plan.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.variable_values import flat, value_of
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import GangError, Tag

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = [
    "PADDING",
    "Found",
    "Item",
    "arrays_in",
    "bytes_of",
    "bytes_of_values",
    "checked",
    "hand_out",
    "packed",
    "swap",
    "typed",
    "unpacked",
    "values_in",
]

Item = tuple[Sum, int]
"""The value of a device."""

Found = dict[tuple[str, int], Any]
"""Values by name and device."""

PADDING = memoryview(bytes(64))
"""What ends a line; slices of it fill what is left of one."""


def typed(memory: Bytes, start: int, total: Sum) -> np.ndarray[Any, Any]:
    """The array of a value that lies in memory.

    Args:
        memory: where.
        start: at which byte it begins.
        total: what it is.
    """
    return memory[start : start + total.nbytes].view(total.dtype).reshape(total.shape)


def arrays_in(memory: Bytes, bucket: Bucket) -> list[np.ndarray[Any, Any]]:
    """The values of a bucket in memory that is laid out for them."""
    starts = bucket.layout.starts
    return [typed(memory, start, total) for total, start in zip(bucket.sums, starts, strict=True)]


def bytes_of(array: np.ndarray[Any, Any]) -> Bytes:
    """The bytes of an array; a view of it if it lies in one piece."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def checked(env: Env, total: Sum, device: int) -> Any:
    """The value of a device, if it is what all members expect it to be.

    Args:
        env: the values of the device.
        total: which one.
        device: its number, for errors.

    Raises:
        GangError: it has another shape or type.
    """
    value = env[total.name]
    if value.shape != total.shape or value.dtype != total.dtype:
        raise GangError(
            f"{total.name} of device {device} is {value.dtype}{list(value.shape)}, but all members "
            f"of the gang expect {total.dtype}{list(total.shape)}"
        )
    return value


def hand_out(
    bucket: Bucket, made: Sequence[Any], envs: Sequence[Env], devices: Sequence[int]
) -> None:
    """Give devices the sums of a bucket.

    Args:
        bucket: the bucket.
        made: its sums, in order.
        envs: values per device.
        devices: who gets them.
    """
    for device in devices:
        envs[device].update((t.made, value) for t, value in zip(bucket.sums, made, strict=True))


def swap(
    group: Group,
    key: Hashable,
    sends: Mapping[int, Sequence[Item]],
    takes: Mapping[int, Sequence[Item]],
    envs: Sequence[Env],
    tag: Tag,
) -> Found:
    """Send values to other members, and take some of theirs.

    Args:
        group: the gang.
        key: names the memory that takes them.
        sends: what goes to whom, by rank.
        takes: what comes from whom.
        envs: values per device.
        tag: what the frames are called.

    Returns:
        What came; dense values are views of memory that the next call for the key writes again.

    Raises:
        GangError: a member failed, is gone, does not answer, or sends something else.
    """
    came: dict[int, Bytes] = {}

    def place(other: int, nbytes: int) -> list[memoryview]:
        came[other] = group.own((key, other), nbytes)[:nbytes]
        return [came[other].data]

    group.exchange(
        tag,
        {other: list(packed(items, envs)) for other, items in sends.items() if items},
        {other: functools.partial(place, other) for other, items in takes.items() if items},
    )
    found: Found = {}
    for other, memory in came.items():
        found.update(unpacked(takes[other], memory, group.members[other].name, tag))
    return found


def packed(items: Sequence[Item], envs: Sequence[Env]) -> Iterator[memoryview]:
    """The buffers of a frame with some values."""
    sparse = [(t, envs[d][t.name]) for t, d in items if t.height is not None]
    counts = np.array([len(value.row_array) for _, value in sparse], np.int64)
    yield from _padded(counts)
    for total, device in items:
        if total.height is None:
            yield from _padded(checked(envs[device], total, device))
    for total, value in sparse:
        yield from _padded(np.asarray(value.row_array, np.int64))
        yield from _padded(np.asarray(value.value, total.dtype))


def _padded(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    data = bytes_of(array).data
    yield data
    yield PADDING[: -len(data) % len(PADDING)]


class _Reader:
    """Takes arrays out of a frame.

    Args:
        memory: the frame.
    """

    def __init__(self, memory: Bytes) -> None:
        self._memory, self._at = memory, 0

    def take(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The next array."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        first, self._at = self._at, self._at + -(-size // 64) * 64
        if size < 0 or self._at > len(self._memory):
            raise ValueError(f"{size} bytes for an array, but {len(self._memory) - first} are left")
        return self._memory[first : first + size].view(dtype).reshape(shape)

    @property
    def at_end(self) -> bool:
        """Whether all was taken."""
        return self._at == len(self._memory)


def unpacked(items: Sequence[Item], memory: Bytes, name: str, tag: Tag) -> Found:
    """The values in a frame.

    Args:
        items: what it holds.
        memory: its bytes; dense values are views of them.
        name: of the member that sent it.
        tag: of the frame.

    Raises:
        GangError: it holds something else.
    """
    found: Found = {}
    reader = _Reader(memory)
    sparse = [(total, device) for total, device in items if total.height is not None]
    try:
        counts = reader.take(np.int64, (len(sparse),)).tolist()
        for total, device in items:
            if total.height is None:
                found[total.name, device] = reader.take(total.dtype, total.shape)
        for (total, device), count in zip(sparse, counts, strict=True):
            rows = reader.take(np.int64, (count,))
            value = reader.take(total.dtype, (count, *total.shape))
            found[total.name, device] = SelectedRows(rows, total.height or 0, value)
        if not reader.at_end:
            raise ValueError("more bytes than arrays")
    except ValueError as error:
        raise GangError(f"{name} sent a frame that is no bucket of {tag}: {error}") from error
    return found


# ---- values of any kind


def bytes_of_values(values: Mapping[tuple[str, int], Any]) -> Iterator[memoryview]:
    """The buffers of a frame with values of variables, whatever they are, and what says so.

    Args:
        values: by name and device, on the host.
    """
    found = [(name, device, *flat(value)) for (name, device), value in values.items()]
    told = [
        (name, device, kind, [(array.dtype.str, array.shape) for array in arrays])
        for name, device, kind, arrays in found
    ]
    words = np.frombuffer(json.dumps(told).encode(), np.uint8)
    for array in (np.array([len(words)]), words):
        yield from _padded(array)
    for *_, arrays in found:
        for array in arrays:
            yield from _padded(array)


def values_in(memory: Bytes, name: str, tag: Tag) -> Found:
    """The values in a frame that :func:`bytes_of_values` made.

    Args:
        memory: its bytes; plain arrays are views of them.
        name: of the member that sent it.
        tag: of the frame.

    Raises:
        GangError: it holds something else.
    """
    reader = _Reader(memory)

    def value(kind: str, forms: Any) -> Any:
        arrays = [reader.take(*form) for form in forms]
        # who copies values takes it that offsets and tables never change
        return value_of(kind, arrays if kind == "tensor" else [array.copy() for array in arrays])

    try:
        (size,) = reader.take(np.int64, (1,)).tolist()
        told = json.loads(reader.take(np.uint8, (size,)).tobytes())
        return {(variable, device): value(kind, forms) for variable, device, kind, forms in told}
    except (ValueError, TypeError) as error:
        raise GangError(f"{name} sent a frame that is no {tag}: {error}") from error
