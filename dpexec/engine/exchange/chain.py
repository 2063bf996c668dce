"""An all-reduce along the members of a gang: each adds its replicas up before anything travels.

A sum goes in the order of the replicas, and those of a member are neighbours. So the first member
adds up its own and sends the sum on, the next one adds its own to that, and the last one has the
whole, which goes around once more. Every member sends a value twice at most, however many
replicas it has. Values are cut into pieces, so that all members work at the same time.

At tick ``t`` the member of rank ``r`` adds its replicas to piece ``t - r`` and sends it on; what
comes around is one tick later at every next member.
"""

from __future__ import annotations

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
"""Bytes of a piece: two system calls take a small part of the time in which it travels."""

_Flat = Sequence[Sequence[Bytes]]
"""The bytes of every value, of each device that is at home here."""


def sends_less(devices: Sequence[Sequence[int]], bucket: Bucket) -> bool:
    """Whether an all-reduce along the members sends less than one that every member divides.

    Dividing, members send shares of every replica and of the sum, together
    ``(members - 1) * (replicas / members + 1)`` values; along the members these are
    ``(members - 1) * 2``.

    Args:
        devices: the replicas of each member.
        bucket: what is added up; comes from all replicas and goes to all.
    """
    in_order = [device for found in devices for device in found]
    if any(list(total.sources) != in_order for total in bucket.sums):
        return False  # another order would give other bits
    return len(in_order) > len(devices)


class Chained:
    """An all-reduce along the members.

    Args:
        group: the gang.
        bucket: what.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        self._cuts = bucket.layout.shares(-(-bucket.layout.size // _PIECE))
        self._mine = group.members[group.rank].devices

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`Reducer.run`."""
        bucket = self._bucket
        memory = self._group.own(("chain", bucket.key), bucket.layout.size)
        flat = flat_values(bucket, envs, self._mine)
        last = len(self._group.members) - 1
        for tick in range(len(self._cuts) + max(2 * last, 1)):
            self._tick(tick, memory, flat, tag)
        sums = zip(bucket.sums, arrays_in(memory, bucket), strict=True)
        hand_out(self._group, sums, envs)

    def _tick(self, tick: int, memory: Bytes, flat: _Flat, tag: Tag) -> None:
        """Add to a piece and send it on, pass on what comes around, and take what comes."""
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
        """Where a piece lies; nothing if there is no such piece."""
        return [slice(*self._cuts[number])] if 0 <= number < len(self._cuts) else []

    def _add(self, piece: slice, memory: Bytes, flat: _Flat) -> None:
        """Add the replicas at home here to what the members before this one have added up."""
        for number, total, place, part in self._bucket.pieces(piece.start, piece.stop):
            out = memory[place].view(total.dtype)
            for index, value in enumerate(flat[number]):
                mine = value[part].view(total.dtype)
                if self._group.rank or index:
                    total.reduction.of(np, (out, mine), out)
                else:
                    np.copyto(out, mine)
