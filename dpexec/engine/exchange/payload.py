"""The values of a collective as bytes: dense arrays, or row numbers and rows of sparse values.

A frame holds their parts in the order of the bucket. It has no shapes and types: these are those of
the plan.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.messages import array_in, bytes_of, joined, parted
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import GangError, Tag

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = [
    "Found",
    "Item",
    "arrays_in",
    "checked",
    "flat_values",
    "hand_out",
    "packed",
    "swap",
    "typed",
    "unpacked",
]

Item = tuple[Sum, int]
"""A value and the device that has it."""

Found = dict[tuple[str, int], Any]
"""Values by name and device."""


def typed(memory: Bytes, start: int, total: Sum) -> np.ndarray[Any, Any]:
    """A value in some memory, as an array.

    Args:
        memory: the memory.
        start: the first byte of the value.
        total: gives its shape and type.
    """
    return memory[start : start + total.nbytes].view(total.dtype).reshape(total.shape)


def arrays_in(memory: Bytes, bucket: Bucket) -> list[np.ndarray[Any, Any]]:
    """The values of a bucket in memory that is laid out for them."""
    starts = bucket.layout.starts
    return [typed(memory, start, total) for total, start in zip(bucket.sums, starts, strict=True)]


def checked(env: Env, total: Sum, device: int) -> Any:
    """The value of a device, if it has the shape and type that all members expect.

    Args:
        env: the values of the device.
        total: the value that is added up.
        device: number of the device, for errors.

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


def flat_values(bucket: Bucket, envs: Sequence[Env], devices: Sequence[int]) -> list[list[Bytes]]:
    """The bytes of every value of a bucket, for each of some devices.

    Args:
        bucket: the bucket; its values are dense.
        envs: values per device.
        devices: the devices.

    Raises:
        GangError: a value has another shape or type than expected.
    """
    return [[bytes_of(checked(envs[d], total, d)) for d in devices] for total in bucket.sums]


def hand_out(
    group: Group, sums: Iterable[tuple[Sum, Any]], envs: Sequence[Env], first: int = 0
) -> None:
    """Give sums to the devices of this member that get them.

    Args:
        group: the gang.
        sums: sums and their results.
        envs: values per device.
        first: the number that the first of these devices has in the gang.
    """
    home, mine = group.home, group.rank
    for total, made in sums:
        for device in total.targets:
            if home[device] == mine:
                envs[device - first][total.made] = made


def swap(
    group: Group,
    key: Hashable,
    sends: Mapping[int, Sequence[Item]],
    takes: Mapping[int, Sequence[Item]],
    envs: Sequence[Env],
    tag: Tag,
) -> Found:
    """Send values to other members, and receive values from others.

    Args:
        group: the gang.
        key: names the memory that takes the received values.
        sends: the values to send, by rank.
        takes: the values to receive, by rank.
        envs: values per device.
        tag: of the frames.

    Returns:
        The received values. Dense ones are views of memory that the next call with this key
        overwrites.

    Raises:
        GangError: a member failed, is gone, does not answer, or sends something else.
    """
    came: dict[int, Bytes] = {}

    def place(other: int, nbytes: int) -> list[memoryview]:
        came[other] = group.own((key, other), nbytes)[:nbytes]
        return [came[other].data]

    group.exchange(
        tag,
        {other: packed(items, envs) for other, items in sends.items() if items},
        {other: functools.partial(place, other) for other, items in takes.items() if items},
    )
    found: Found = {}
    for other, memory in came.items():
        found.update(unpacked(takes[other], memory, group.members[other].name, tag))
    return found


def packed(items: Sequence[Item], envs: Sequence[Env]) -> list[memoryview]:
    """The buffers of a frame with some values."""
    parts = []
    for total, device in items:
        if total.height is None:
            parts.append(bytes_of(checked(envs[device], total, device)).data)
        elif total.elements and not isinstance(envs[device][total.name], SelectedRows):
            parts.append(memoryview(b""))  # no row numbers: all elements follow
            parts.append(bytes_of(checked(envs[device], total, device)).data)
        else:
            value = envs[device][total.name]
            parts.append(bytes_of(np.asarray(value.row_array, np.int64)).data)
            parts.append(bytes_of(np.asarray(value.value, total.dtype)).data)
    return joined(parts)


def unpacked(items: Sequence[Item], memory: Bytes, name: str, tag: Tag) -> Found:
    """The values in a frame.

    Args:
        items: the values that it should hold.
        memory: its bytes; dense values are views of them.
        name: of the member that sent it.
        tag: of the frame.

    Raises:
        GangError: it holds something else.
    """
    found: Found = {}
    expected = sum(1 if total.height is None else 2 for total, _ in items)
    try:
        parts = parted(memory.data)
        if len(parts) != expected:
            raise ValueError(f"{len(parts)} arrays, but {expected} were due")
        left = iter(parts)
        for total, device in items:
            if total.height is None:
                found[total.name, device] = array_in(next(left), total.dtype, total.shape)
            else:
                found[total.name, device] = _sparse(total, next(left), next(left))
    except ValueError as error:
        raise GangError(f"{name} sent a frame that is no bucket of {tag}: {error}") from error
    return found


def _sparse(total: Sum, rows: memoryview, value: memoryview) -> Any:
    """A sparse value; or a dense one that comes as single elements in other steps."""
    numbers = array_in(rows, np.int64, (-1,))
    if total.elements and not len(numbers):
        return array_in(value, total.dtype, total.shape)
    behind = () if total.elements else total.shape
    parts = array_in(value, total.dtype, (len(numbers), *behind))
    return SelectedRows(numbers, total.height or 0, parts)
