"""The values of a collective as bytes: dense ones, and sparse ones as the ids and numbers of rows.

A frame holds their parts in the order of the bucket; shapes and types are those of the plan.
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
"""The value of a device."""

Found = dict[tuple[str, int], Any]
"""Values by name and device."""


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


def flat_values(bucket: Bucket, envs: Sequence[Env], devices: Sequence[int]) -> list[list[Bytes]]:
    """The bytes of every value of a bucket, of each of some devices.

    Args:
        bucket: the bucket; its values are dense.
        envs: values per device.
        devices: whose values.

    Raises:
        GangError: one has another shape or type than expected.
    """
    return [[bytes_of(checked(envs[d], total, d)) for d in devices] for total in bucket.sums]


def hand_out(
    group: Group, sums: Iterable[tuple[Sum, Any]], envs: Sequence[Env], first: int = 0
) -> None:
    """Give sums to the devices that want them and are at home here.

    Args:
        group: the gang.
        sums: each with its result.
        envs: values per device.
        first: which device of the gang is the first one of them.
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
        items: what it holds.
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
    """A sparse value, or all elements of one that comes as elements in other steps."""
    numbers = array_in(rows, np.int64, (-1,))
    if total.elements and not len(numbers):
        return array_in(value, total.dtype, total.shape)
    behind = () if total.elements else total.shape
    parts = array_in(value, total.dtype, (len(numbers), *behind))
    return SelectedRows(numbers, total.height or 0, parts)
