"""Deterministic collectives between the members of a gang.

Sums go in device order, ``((g0 + g1) + g2) + ...``, wherever they are computed, so they have the
bits that they have in one process. Small and sparse values go to all who want them, who add them
up themselves. Of large ones that all want, every member sums an equal share, or adds its replicas
to what the members before it have added up (:mod:`chain`), whichever sends less. On one host,
large values lie in memory that all members see, and only "it is there" crosses the sockets.

Memory is used again at every step. That is safe because every step has a point that no member
passes before all have reached it (:meth:`Group.barrier`, or an all-reduce, see :mod:`members`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.runtime.collectives import add_in_order
from dpexec.runtime.env import Env
from dpexec.runtime.gang.buckets import SHARED_FROM, Bucket, Layout, Sum
from dpexec.runtime.gang.chain import Chained, sends_less
from dpexec.runtime.gang.payload import (
    PADDING,
    Item,
    bytes_of,
    checked,
    packed,
    typed,
    unpacked,
)
from dpexec.runtime.gang.rendezvous import Member
from dpexec.runtime.gang.shared import Bytes, share_memory
from dpexec.runtime.gang.wire import Channel, Place, Tag, exchange, say_goodbye

__all__ = ["Group"]

_BLOCK = 1 << 16  # bytes; what is added up at once, so that it stays in the cache


class Group:
    """The connected members of a gang, as one of them sees it.

    Args:
        members: all members.
        rank: which of them this is.
        channels: connections to the others.
        limit: seconds that a member may be silent when it is waited for.
    """

    def __init__(
        self, members: Sequence[Member], rank: int, channels: dict[int, Channel], limit: float
    ) -> None:
        self.members, self.rank, self.limit = members, rank, limit
        self.channels = channels
        self.home = {d: r for r, member in enumerate(members) for d in member.devices}
        hosts = {member.host for member in members}
        self.on_one_host = len(hosts) == 1 and hosts != {""}
        self.bytes_sent = 0
        self.moved: dict[int, dict[str, int]] = {}
        """What collectives of the latest step moved, by number: bytes that went through sockets,
        and that were put into memory which several members see."""
        self._step = -1
        self._memory: dict[Any, dict[int, Bytes]] = {}
        self._own: dict[Any, Bytes] = {}

    def close(self, text: str = "") -> None:
        """Leave the gang.

        Args:
            text: if others may be waiting for this member: what they are told.
        """
        if text:
            say_goodbye(self.channels, text)
        for channel in self.channels.values():
            channel.close()
        self._memory.clear()
        self._own.clear()

    def interrupt(self) -> None:
        """Let another thread's wait for members end with an error."""
        for channel in self.channels.values():
            channel.interrupt()

    def barrier(self, step: int) -> None:
        """Wait until all members have come here.

        Raises:
            GangError: a member does not come.
        """
        self.exchange(
            Tag(step, 1 << 32, "the wait for all replicas before updates"),
            dict.fromkeys(self.channels, ()),
            dict.fromkeys(self.channels, _nothing),
        )

    def work(self, bucket: Bucket) -> _Direct | _Divided | Chained:
        """What adds up a bucket, at every step."""
        if not (self._is_large(bucket) and bucket.for_all(len(self.home))):
            return _Direct(self, bucket)
        devices = [member.devices for member in self.members]
        if not self.on_one_host and sends_less(devices, bucket):
            return Chained(self, bucket)
        return _Divided(self, bucket)

    def is_barrier(self, bucket: Bucket) -> bool:
        """Whether nobody leaves a bucket's collective before all have come to it."""
        return bucket.for_all(len(self.home)) and bool(bucket.sums)

    def uses_memory(self, bucket: Bucket) -> bool:
        """Whether its values lie in memory that several members see."""
        return self.on_one_host and self._is_large(bucket)

    def _is_large(self, bucket: Bucket) -> bool:
        nbytes = sum(total.nbytes for total in bucket.sums) if bucket.is_dense else 0
        return nbytes >= SHARED_FROM and len(self.members) > 1

    # ---- for collectives

    def exchange(self, tag: Tag, sends: Mapping[int, Any], places: Mapping[int, Any]) -> None:
        """Send and receive frames, see :func:`dpexec.runtime.gang.wire.exchange`."""
        sent = sum(len(buffer) for buffers in sends.values() for buffer in buffers)
        self.bytes_sent += sent
        moved = self.moved_at(tag)
        moved["sent"] += sent

        def counted(place: Place, nbytes: int) -> Sequence[memoryview]:
            moved["received"] += nbytes
            return place(nbytes)

        takes = {rank: functools.partial(counted, place) for rank, place in places.items()}
        exchange(self.channels, tag, sends, takes, self.limit)

    def moved_at(self, tag: Tag) -> dict[str, int]:
        """Where to count what a collective moves."""
        if tag.step != self._step:
            self._step, self.moved = tag.step, {}
        return self.moved.setdefault(tag.number, {"sent": 0, "received": 0, "shared": 0})

    def memory(self, key: Any, sizes: dict[int, int], tag: Tag) -> dict[int, Bytes]:
        """Memory that all members see, by the rank of who provides it; the same for a key."""
        if key not in self._memory:
            self._memory[key] = share_memory(self.channels, sizes, self.rank, tag, self.limit)
        return self._memory[key]

    def own(self, key: Any, size: int) -> Bytes:
        """Memory of this member; the same for a key."""
        if key not in self._own or len(self._own[key]) < size:
            self._own[key] = np.empty(size, np.uint8)
        return self._own[key]


class _Direct:
    """Values go to all who want them: small and sparse ones, reductions to one, broadcasts.

    Args:
        group: the gang.
        bucket: what.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        me, home = group.rank, group.home
        self._sums = [t for t in bucket.sums if any(home[d] == me for d in t.targets)]
        self._buffers: dict[str, Any] = {}
        self._to = {other: self._items(me, {other}) for other in group.channels}
        self._from = {other: self._items(other, {me}) for other in group.channels}
        self._shared = group.uses_memory(bucket)
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
        """Add up the bucket.

        Args:
            envs: values per device; only those of devices at home here are read and written.
            tag: what the frames are called.

        Raises:
            GangError: a member failed, is gone, or does not answer.
        """
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

    def _through_memory(self, envs: Sequence[Env], tag: Tag) -> dict[tuple[str, int], Any]:
        group = self._group
        layouts = {r: Layout([t.nbytes for t, _ in items]) for r, items in self._posted.items()}
        key = "direct", self._bucket.key
        memory = group.memory(key, {r: layout.size for r, layout in layouts.items()}, tag)
        for (total, device), start in zip(
            self._posted[group.rank], layouts[group.rank].starts, strict=True
        ):
            np.copyto(typed(memory[group.rank], start, total), checked(envs[device], total, device))
            group.moved_at(tag)["shared"] += total.nbytes
        group.exchange(
            tag,
            {other: () for other, items in self._to.items() if items},
            {other: _nothing for other, items in self._from.items() if items},
        )
        return {
            (total.name, device): typed(memory[rank], start, total)
            for rank, items in self._posted.items()
            if rank != group.rank
            for (total, device), start in zip(items, layouts[rank].starts, strict=True)
        }

    def _by_wire(self, envs: Sequence[Env], tag: Tag) -> dict[tuple[str, int], Any]:
        came: dict[int, Bytes] = {}

        def place(other: int, nbytes: int) -> list[memoryview]:
            came[other] = self._group.own(("came", self._bucket.key, other), nbytes)[:nbytes]
            return [came[other].data]

        frames = {other: list(packed(items, envs)) for other, items in self._to.items() if items}
        wanted = [other for other, items in self._from.items() if items]
        self._group.exchange(
            tag,
            frames,
            {other: lambda nbytes, other=other: place(other, nbytes) for other in wanted},
        )
        found: dict[tuple[str, int], Any] = {}
        for other in wanted:
            found.update(
                unpacked(self._from[other], came[other], self._group.members[other].name, tag)
            )
        return found


class _Divided:
    """An all-reduce of which every member sums a share.

    Args:
        group: the gang.
        bucket: what.
    """

    def __init__(self, group: Group, bucket: Bucket) -> None:
        self._group, self._bucket = group, bucket
        self._layout = Layout([total.nbytes for total in bucket.sums])
        self._shares = self._layout.shares(len(group.members))
        self._mine = group.members[group.rank].devices
        self._everybody = dict.fromkeys(group.channels, ())
        self._additions: list[list[np.ndarray[Any, Any]]] = []
        self._results: list[Any] = []
        self._inputs: list[tuple[Sum, int, Any]] = []

    def run(self, envs: Sequence[Env], tag: Tag) -> None:
        """Add up the bucket, see :meth:`_Direct.run`."""
        (self._in_memory if self._group.on_one_host else self._by_wire)(envs, tag)
        for device in self._mine:
            made = zip(self._bucket.sums, self._results, strict=True)
            envs[device].update((total.made, result) for total, result in made)

    def _in_memory(self, envs: Sequence[Env], tag: Tag) -> None:
        group = self._group
        if not self._results:
            self._prepare_memory(tag)
        for total, device, target in self._inputs:
            np.copyto(target, checked(envs[device], total, device))
            group.moved_at(tag)["shared"] += total.nbytes
        places = dict.fromkeys(group.channels, _nothing)
        group.exchange(tag, self._everybody, places)
        _add_up(self._additions)
        group.exchange(tag, self._everybody, places)

    def _prepare_memory(self, tag: Tag) -> None:
        """Every member's memory holds the values of its devices; that of the first, the sums."""
        group, size = self._group, self._layout.size
        sizes = {rank: size * len(m.devices) for rank, m in enumerate(group.members)}
        sizes[0] += size
        memory = group.memory(("divided", self._bucket.key), sizes, tag)
        result = memory[0][-size:] if size else memory[0]
        parts = {
            device: memory[rank][size * place : size * (place + 1)]
            for rank, member in enumerate(group.members)
            for place, device in enumerate(member.devices)
        }
        starts = list(zip(self._bucket.sums, self._layout.starts, strict=True))
        self._inputs = [(t, d, typed(parts[d], at, t)) for d in self._mine for t, at in starts]
        low, high = self._shares[group.rank]
        self._additions = [
            [result[first:end].view(total.dtype)]
            + [parts[device][first:end].view(total.dtype) for device in total.sources]
            for total, first, end in self._pieces(low, high)
        ]
        self._results = [typed(result, start, total) for total, start in starts]

    def _by_wire(self, envs: Sequence[Env], tag: Tag) -> None:
        group, size = self._group, self._layout.size
        low, high = self._shares[group.rank]
        result = group.own(("sum", self._bucket.key), size)[:size]
        if not self._results:
            starts = zip(self._bucket.sums, self._layout.starts, strict=True)
            self._results = [typed(result, start, total) for total, start in starts]
        flat = {
            (total, device): bytes_of(checked(envs[device], total, device))
            for device in self._mine
            for total in self._bucket.sums
        }
        came = {
            other: group.own(("share", self._bucket.key, other), (high - low) * len(member.devices))
            for other, member in enumerate(group.members)
            if other != group.rank
        }
        group.exchange(
            tag,
            {other: list(self._share_of(flat, other)) for other in group.channels},
            {other: lambda _, other=other: [came[other].data] for other in group.channels},
        )
        additions = []
        for total, first, end in self._pieces(low, high):
            start = self._start(total)
            parts = [result[first:end].view(total.dtype)]
            for device in total.sources:
                rank = group.home[device]
                if rank == group.rank:
                    array = np.frombuffer(flat[total, device], np.uint8)[
                        first - start : end - start
                    ]
                else:
                    at = group.members[rank].devices.index(device) * (high - low) - low
                    array = came[rank][at + first : at + end]
                parts.append(array.view(total.dtype))
            additions.append(parts)
        _add_up(additions)
        mine = [result[low:high].data]
        group.exchange(
            tag,
            dict.fromkeys(group.channels, mine),
            {
                other: lambda _, other=other: [result[slice(*self._shares[other])].data]
                for other in group.channels
            },
        )

    def _start(self, total: Sum) -> int:
        return self._layout.starts[self._bucket.sums.index(total)]

    def _pieces(self, low: int, high: int) -> Iterator[tuple[Sum, int, int]]:
        """The parts of arrays that lie between two positions, padding left out."""
        for total, start in zip(self._bucket.sums, self._layout.starts, strict=True):
            first, end = max(start, low), min(start + total.nbytes, high)
            if first < end:
                yield total, first, end

    def _share_of(self, flat: Mapping[Item, memoryview], other: int) -> Iterator[memoryview]:
        """What another member is to add up, of all devices that are at home here."""
        low, high = self._shares[other]
        for device in self._mine:
            at = low
            for total, first, end in self._pieces(low, high):
                start = self._start(total)
                yield PADDING[: first - at]
                yield flat[total, device][first - start : end - start]
                at = end
            yield PADDING[: high - at]


def _nothing(nbytes: int) -> Sequence[memoryview]:
    return ()


def _add_up(additions: Sequence[Sequence[np.ndarray[Any, Any]]]) -> None:
    """Sum arrays in order: of each list, all but the first into the first."""
    for result, first, *others in additions:
        if not others:
            np.copyto(result, first)
        elif len(others) == 1:
            np.add(first, others[0], out=result)
        else:
            block = _BLOCK // result.itemsize
            for start in range(0, len(result), block):
                part = slice(start, start + block)
                out = np.add(first[part], others[0][part], out=result[part])
                for other in others[1:]:
                    np.add(out, other[part], out=out)
