"""The members of a gang: their connections, and the memory of their collectives.

Memory is used again at every step. That is safe because every step has a point that no member
passes before all have reached it: :meth:`Group.barrier`, or an all-reduce.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.messages import Room
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.shared import (
    LEAST,
    Borrower,
    Bytes,
    Lender,
    hand_over,
    is_place,
    share_memory,
    with_room,
)
from dpexec.engine.exchange.wire import Place, Tag, exchange, into, say_goodbye
from dpexec.engine.gpu.nccl import NcclCall

__all__ = ["GpuExchange", "Group"]


class GpuExchange(Protocol):
    """Exchanges values between the GPUs of members; see :class:`.nccl.Exchange`."""

    def enqueue(self, calls: Sequence[NcclCall], tag: Tag) -> None:
        """Enqueue calls that run after the work on the current stream."""

    def finish(self, step: int) -> None:
        """Wait until all enqueued calls are done."""

    def close(self) -> None:
        """End calls that are still under way."""


class Group:
    """The connected members of a gang, as one of them sees it.

    Args:
        members: all members.
        rank: the position of this member among them.
        channels: connections to the others, by rank.
        limit: seconds that a member may be silent while others wait for it.
    """

    def __init__(
        self, members: Sequence[Member], rank: int, channels: dict[int, Channel], limit: float
    ) -> None:
        self.members, self.rank, self.limit = members, rank, limit
        self.channels = channels
        self.home = {d: r for r, member in enumerate(members) for d in member.devices}
        hosts = {member.host for member in members}
        self.on_one_host = len(hosts) == 1 and hosts != {""}
        self.has_words = False
        """Whether members may tell each other by words in shared memory how far they are."""
        self.bytes_sent = 0
        self.moved: dict[int, dict[str, int]] = {}
        """By number of a collective, what it moved in the latest step: bytes through sockets, bytes
        into memory that several members see, and how long it waited first, see :meth:`waited`."""
        self.nccl: GpuExchange | None = None
        """Exchanges values between GPUs directly; None: values go through the host."""
        self._step = -1
        self._own: dict[Any, Bytes] = {}
        local = {rank: channel for rank, channel in channels.items() if channel.is_local}
        self._lenders = {rank: Lender() for rank in local}
        self._borrowers = {rank: Borrower(channel.name) for rank, channel in local.items()}

    def close(self, text: str = "") -> None:
        """Leave the gang.

        Args:
            text: the reason that others are told; empty if nobody waits for this member.
        """
        if text:
            say_goodbye(self.channels, text)
        for channel in self.channels.values():
            channel.close()
        if self.nccl is not None:
            self.nccl.close()
        self._own.clear()

    def interrupt(self) -> None:
        """Let another thread's wait for members end with an error."""
        for channel in self.channels.values():
            channel.interrupt()

    def barrier(self, step: int) -> None:
        """Wait until all members call it.

        Raises:
            GangError: a member does not come.
        """
        tag = Tag(step, 1 << 32, "the wait for all replicas before updates")
        self.signal(tag, self.channels, self.channels)

    # ---- for collectives

    def exchange(self, tag: Tag, sends: Mapping[int, Any], places: Mapping[int, Any]) -> None:
        """Send and receive frames, see :func:`dpexec.engine.exchange.wire.exchange`."""
        sent = sum(len(buffer) for buffers in sends.values() for buffer in buffers)
        self.bytes_sent += sent
        moved = self.moved_at(tag)
        moved["sent"] += sent
        began = time.perf_counter_ns()
        heard: dict[int, int] = {}

        def counted(rank: int, place: Place, nbytes: int) -> Sequence[memoryview]:
            heard[rank] = time.perf_counter_ns()
            moved["received"] += nbytes
            return place(nbytes)

        takes = {rank: functools.partial(counted, rank, place) for rank, place in places.items()}
        exchange(self.channels, tag, sends, takes, self.limit)
        if heard and "waited" not in moved:
            last = max(heard, key=heard.__getitem__)
            moved.update(self.waited(heard[last] - began, last))

    def talk(
        self, tag: Tag, messages: Mapping[int, Sequence[memoryview]], of: Iterable[int]
    ) -> dict[int, memoryview]:
        """Send messages to members, and receive one from each of some.

        Large messages lie in memory that a member of the same host sees; nobody copies them again.

        Args:
            tag: the tag of the frames.
            messages: their buffers, by rank.
            of: ranks of the members that send one.

        Returns:
            The bytes of the received messages, by rank, which stay as they are.

        Raises:
            GangError: a member is gone, is silent, or ends the run.
        """
        sends, new = dict[int, Sequence[Any]](messages), dict[int, int]()
        rooms = {rank: Room(self.members[rank].name) for rank in of}
        try:
            for rank, buffers in messages.items():
                nbytes, lender = sum(map(len, buffers)), self._lenders.get(rank)
                lent = lender.lend(buffers, nbytes) if lender and nbytes >= LEAST else None
                if lent is not None:
                    sends[rank] = [memoryview(lent[0])]
                    self.moved_at(tag)["shared"] += nbytes
                    if lent[1] is not None:
                        new[rank] = lent[1]
            self.exchange(tag, sends, rooms)
            for rank, room in new.items():
                hand_over(self.channels[rank], room, tag, self.limit)
        finally:
            for room in new.values():
                os.close(room)
        return {rank: self._message(rank, room.data, tag) for rank, room in rooms.items()}

    def _message(self, rank: int, data: memoryview, tag: Tag) -> memoryview:
        """A message that came, or whose place came."""
        if rank not in self._borrowers or not is_place(data):
            return data
        rooms = with_room(data, self.channels[rank], tag, self.limit)
        return self._borrowers[rank].take(data, rooms)

    def waited(self, nanoseconds: int, last: int | None) -> dict[str, int]:
        """The note about a wait for other members at the begin of a collective.

        Args:
            nanoseconds: the time until something came of the slowest member.
            last: rank of that member; None if all were there already.

        Returns:
            The time, the rank, and the first replica of that member; empty without a wait.
        """
        return {} if last is None else {"waited": nanoseconds, **self.whom(last)}

    def whom(self, rank: int) -> dict[str, int]:
        """How notes name a member: by its rank and its first replica."""
        return {"rank": rank, "replica": min(self.members[rank].devices, default=rank)}

    def signal(self, tag: Tag, to: Iterable[int], of: Iterable[int]) -> None:
        """Send empty frames to some members, and wait for those of some members.

        Args:
            tag: the tag of the frames.
            to: ranks of the members that are sent one.
            of: ranks of the members that are waited for.

        Raises:
            GangError: a member does not answer.
        """
        self.exchange(tag, dict.fromkeys(to, ()), dict.fromkeys(of, into()))

    def moved_at(self, tag: Tag) -> dict[str, int]:
        """The counters of a collective; those of earlier steps are forgotten."""
        if tag.step != self._step:
            self._step, self.moved = tag.step, {}
        return self.moved.setdefault(tag.number, {"sent": 0, "received": 0, "shared": 0})

    def share(self, sizes: dict[int, int], tag: Tag) -> dict[int, Bytes]:
        """New memory that all members see.

        Args:
            sizes: how many bytes each member provides, by rank.
            tag: names its use in errors.

        Returns:
            The memory, by rank of the member that provides it.

        Raises:
            GangError: a member did not answer.
        """
        return share_memory(self.channels, sizes, self.rank, tag, self.limit)

    def own(self, key: Any, size: int) -> Bytes:
        """Memory of this member for a use; kept by key."""
        if key not in self._own or len(self._own[key]) < size:
            self._own[key] = np.empty(size, np.uint8)
        return self._own[key]
