"""How a bucket is added up through sockets: deterministic collectives between processes.

Values are added up in device order, ``((g0 + g1) + g2) + ...``, wherever that is done. So sums have
the same bits as in one process.

| values | added up by |
|---|---|
| large, from all for all | `Chained` or `DividedByWire`, whichever sends less |
| others | `Direct` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dpexec.engine.compile.plans.collectives import combined
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import Bucket
from dpexec.engine.exchange.chain import Chained, sends_less
from dpexec.engine.exchange.divided import DividedByWire
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.payload import Item, hand_out, swap
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import Tag

__all__ = ["Direct", "Reducer", "reducer_of"]


class Reducer(Protocol):
    """Adds up a bucket, at every step."""

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket.

        Args:
            envs: values per device; only those of this member's devices are read and written.
            tag: of the frames.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """


class SocketReducer(Reducer, Protocol):
    """Adds up a bucket through sockets."""

    @property
    def made(self) -> Bytes | None:
        """Where the sums lie after every step, as the bucket lays them out; None: anywhere."""


class Direct:
    """Sends values directly to the members that get their sum, which they add up themselves.

    It is used for small and sparse values, for reductions to one device, and for broadcasts.

    Args:
        group: the gang.
        bucket: the sums.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        self.made: Bytes | None = None
        me, home = group.rank, group.home
        self._sums = [t for t in bucket.sums if any(home[d] == me for d in t.targets)]
        self._buffers: dict[str, Any] = {}
        self._to = {other: self._items(me, {other}) for other in group.channels}
        self._from = {other: self._items(other, {me}) for other in group.channels}

    def _items(self, source: int, targets: set[int]) -> list[Item]:
        """The values of one member that others need for their sums."""
        home = self._group.home
        return [
            (total, device)
            for total in self._bucket.sums
            if any(home[d] in targets for d in total.targets)
            for device in total.sources
            if home[device] == source
        ]

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`Reducer.run`."""
        key = "came", self._bucket.key
        came = swap(self._group, key, self._to, self._from, envs, tag)
        me, home = self._group.rank, self._group.home
        for total in self._sums:
            values = [
                envs[d][total.name] if home[d] == me else came[total.name, d] for d in total.sources
            ]
            result = combined(total.reduction, values, np, self._buffers.get(total.name))
            self._buffers[total.name] = result if len(values) > 1 else None
            hand_out(self._group, [(total, result)], envs)


def reducer_of(group: Group, bucket: Bucket) -> SocketReducer:
    """The reducer of a bucket; all members choose the same."""
    large = bucket.is_large and len(group.members) > 1
    if not (large and bucket.for_all(len(group.home))):
        return Direct(group, bucket)
    if sends_less([member.devices for member in group.members], bucket):
        return Chained(group, bucket)
    return DividedByWire(group, bucket)
