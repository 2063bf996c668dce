"""Values go to all members that want them, who add them up themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.compile.plans.collectives import add_in_order
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.exchange.buckets import ArrayLayout, Bucket
from dpexec.engine.exchange.payload import Found, Item, checked, swap, typed
from dpexec.engine.exchange.wire import Tag

if TYPE_CHECKING:
    from dpexec.engine.exchange.group import Group

__all__ = ["Direct"]


class Direct:
    """Adds up small and sparse values, reduces to one device, and broadcasts.

    Args:
        group: the gang.
        bucket: what.
        shared: whether values go through memory that all members see.
    """

    def __init__(self, group: Group, bucket: Bucket, shared: bool) -> None:
        self._group, self._bucket, self._shared = group, bucket, shared
        me, home = group.rank, group.home
        self._sums = [t for t in bucket.sums if any(home[d] == me for d in t.targets)]
        self._buffers: dict[str, Any] = {}
        self._to = {other: self._items(me, {other}) for other in group.channels}
        self._from = {other: self._items(other, {me}) for other in group.channels}
        self._posted = {
            r: self._items(r, {*range(len(group.members))} - {r}) for r in home.values()
        }

    def _items(self, source: int, targets: set[int]) -> list[Item]:
        """What one member has that some others want."""
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
        came = self._through_memory(envs, tag) if self._shared else self._by_wire(envs, tag)
        me, home = self._group.rank, self._group.home
        for total in self._sums:
            values = [
                envs[d][total.name] if home[d] == me else came[total.name, d] for d in total.sources
            ]
            result = add_in_order(values, np, self._buffers.get(total.name))
            self._buffers[total.name] = result if len(values) > 1 else None
            for device in total.targets:
                if home[device] == me:
                    envs[device][total.made] = result

    def _by_wire(self, envs: Sequence[Env], tag: Tag) -> Found:
        return swap(self._group, ("came", self._bucket.key), self._to, self._from, envs, tag)

    def _through_memory(self, envs: Sequence[Env], tag: Tag) -> Found:
        group = self._group
        layouts = {
            r: ArrayLayout([t.nbytes for t, _ in items]) for r, items in self._posted.items()
        }
        key = "direct", self._bucket.key
        memory = group.memory(key, {r: layout.size for r, layout in layouts.items()}, tag)
        for (total, device), start in zip(
            self._posted[group.rank], layouts[group.rank].starts, strict=True
        ):
            np.copyto(typed(memory[group.rank], start, total), checked(envs[device], total, device))
            group.moved_at(tag)["shared"] += total.nbytes
        group.signal(
            tag,
            [other for other, items in self._to.items() if items],
            [other for other, items in self._from.items() if items],
        )
        return {
            (total.name, device): typed(memory[rank], start, total)
            for rank, items in self._posted.items()
            if rank != group.rank
            for (total, device), start in zip(items, layouts[rank].starts, strict=True)
        }
