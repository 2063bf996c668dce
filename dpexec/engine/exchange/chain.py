"""An all-reduce along the members of a gang: each adds its own replicas before it sends.

Sums are computed in the order of the replicas, and the replicas of a member are neighbours. The
first member adds up its replicas and sends the sum on, the next one adds its own replicas to it,
and the last member has the whole sum. That goes around the members once more. Every member sends a
value twice at most, however many replicas it has. Values are cut into pieces, so that all members
work at the same time.

At tick ``t`` the member of rank ``r`` adds its replicas to piece ``t - r`` and sends the piece on.
A finished piece reaches each further member one tick later.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.payload import arrays_in, flat_values, hand_out
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import Tag, into

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = ["Chained", "sends_less"]

_PIECE = 1 << 19
"""Bytes of a piece: large enough that two system calls take little of the time that it travels."""

_Flat = Sequence[Sequence[Bytes]]
"""The bytes of every value, for each device of this member."""


def sends_less(devices: Sequence[Sequence[int]], bucket: Bucket) -> bool:
    """Whether :class:`Chained` sends less than :class:`.divided.DividedByWire`.

    When members divide the work, they send shares of every replica and of the sum, together
    ``(members - 1) * (replicas / members + 1)`` values. Along the members they send
    ``(members - 1) * 2``.

    Args:
        devices: the replicas of each member.
        bucket: the sums; their values come from all replicas and go to all.
    """
    in_order = [device for found in devices for device in found]
    if any(list(total.sources) != in_order for total in bucket.sums):
        return False  # another order would give other bits
    return len(in_order) > len(devices)


class Chained:
    """An all-reduce along the members.

    Args:
        group: the gang.
        bucket: the sums.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        self._cuts = bucket.layout.shares(-(-bucket.layout.size // _PIECE))
        self._mine = group.members[group.rank].devices

    @functools.cached_property
    def made(self) -> Bytes:
        """Where the sums lie."""
        return np.empty(self._bucket.layout.size, np.uint8)

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`Reducer.run`."""
        bucket = self._bucket
        memory = self.made
        flat = flat_values(bucket, envs, self._mine)
        last = len(self._group.members) - 1
        for tick in range(len(self._cuts) + max(2 * last, 1)):
            self._tick(tick, memory, flat, tag)
        sums = zip(bucket.sums, arrays_in(memory, bucket), strict=True)
        hand_out(self._group, sums, envs)

    def _tick(self, tick: int, memory: Bytes, flat: _Flat, tag: Tag) -> None:
        """Add to a piece and send it on, pass on a finished piece, and receive pieces."""
        rank, last = self._group.rank, len(self._group.members) - 1
        sends: dict[int, list[memoryview]] = {}
        takes: dict[int, list[memoryview]] = {}
        for piece in self._piece(tick - rank):
            self._add(piece, memory, flat)
            sends.setdefault((rank + 1) % (last + 1), []).append(memory[piece].data)
        if rank > 0:
            for piece in self._piece(tick - rank + 1):
                takes.setdefault(rank - 1, []).append(memory[piece].data)
        if rank < last:
            for piece in self._piece(tick - last - rank):
                takes.setdefault((rank - 1) % (last + 1), []).append(memory[piece].data)
        if rank < last - 1:
            for piece in self._piece(tick - last - rank - 1):
                sends.setdefault(rank + 1, []).append(memory[piece].data)
        self._group.exchange(tag, sends, {other: into(*views) for other, views in takes.items()})

    def _piece(self, number: int) -> list[slice]:
        """The place of a piece; an empty list if there is no such piece."""
        return [slice(*self._cuts[number])] if 0 <= number < len(self._cuts) else []

    def _add(self, piece: slice, memory: Bytes, flat: _Flat) -> None:
        """Add the replicas of this member to the sum of the members before it."""
        for number, total, place, part in self._bucket.pieces(piece.start, piece.stop):
            out = memory[place].view(total.dtype)
            for index, value in enumerate(flat[number]):
                mine = value[part].view(total.dtype)
                if self._group.rank or index:
                    total.reduction.of(np, (out, mine), out)
                else:
                    np.copyto(out, mine)
