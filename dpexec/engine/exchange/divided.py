"""An all-reduce in which every member adds up an equal share of the bytes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.reductions import Reduction
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.messages import PADDING
from dpexec.engine.exchange.payload import arrays_in, flat_values, hand_out
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import Tag, into

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = ["DividedByWire", "add_up"]

_BLOCK = 1 << 16  # bytes that are added up at once, so that they stay in the cache

_Addition = tuple[Reduction, Sequence[np.ndarray[Any, Any]]]
"""How values are combined, the array that takes the result, and the values, in order."""

_Flat = Sequence[Sequence[Bytes]]
"""The bytes of every value, for each device of this member."""


class DividedByWire:
    """An all-reduce through sockets: each member gets and sums its share, and sends the sum to all.

    Args:
        group: the gang.
        bucket: the sums.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        self._mine = group.members[group.rank].devices
        self._shares = bucket.layout.shares(len(group.members))

    @functools.cached_property
    def made(self) -> Bytes:
        """Where the sums lie."""
        return np.empty(self._bucket.layout.size, np.uint8)

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`Reducer.run`."""
        group, bucket = self._group, self._bucket
        low, high = self._shares[group.rank]
        flat = flat_values(bucket, envs, self._mine)
        came = {
            other: group.own(("share", bucket.key, other), (high - low) * len(member.devices))
            for other, member in enumerate(group.members)
            if other != group.rank
        }
        group.exchange(
            tag,
            {other: list(self._share_of(flat, other)) for other in group.channels},
            {other: into(came[other].data) for other in group.channels},
        )
        result = self.made
        add_up(self._additions(flat, came, result))
        mine = [result[low:high].data]
        group.exchange(
            tag,
            dict.fromkeys(group.channels, mine),
            {other: into(result[slice(*self._shares[other])].data) for other in group.channels},
        )
        hand_out(group, zip(bucket.sums, arrays_in(result, bucket), strict=True), envs)

    def _share_of(self, flat: _Flat, other: int) -> Iterator[memoryview]:
        """The bytes of this member's devices that another member adds up."""
        low, high = self._shares[other]
        for index in range(len(self._mine)):
            at = low
            for number, _, place, part in self._bucket.pieces(low, high):
                yield PADDING[: place.start - at]
                yield flat[number][index][part].data
                at = place.stop
            yield PADDING[: high - at]

    def _additions(
        self, flat: _Flat, came: Mapping[int, Bytes], result: Bytes
    ) -> Iterator[_Addition]:
        """The sums that this member computes, of its own values and of those that came."""
        members, home = self._group.members, self._group.home
        low, high = self._shares[self._group.rank]
        for number, total, place, part in self._bucket.pieces(low, high):
            arrays = [result[place]]
            for device in total.sources:
                rank = home[device]
                if rank == self._group.rank:
                    arrays.append(flat[number][self._mine.index(device)][part])
                else:
                    at = members[rank].devices.index(device) * (high - low) - low
                    arrays.append(came[rank][at + place.start : at + place.stop])
            yield total.reduction, [array.view(total.dtype) for array in arrays]


def add_up(additions: Iterable[_Addition]) -> None:
    """Combine arrays in order: the first array of each list takes the sum of the others."""
    for how, (result, *values) in additions:
        if len(values) == 1:
            np.copyto(result, values[0])
            continue
        block = _BLOCK // result.itemsize if len(values) > 2 else max(len(result), 1)
        for start in range(0, len(result), block):
            part = slice(start, start + block)
            how.of(np, [value[part] for value in values], result[part])
