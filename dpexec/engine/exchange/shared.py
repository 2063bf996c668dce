"""Memory that the members of one host share.

It has no name, so nobody has to unlink it: a member makes it (``memfd_create``) and hands it to
the others through the Unix sockets that connect them. It is gone with the last process that uses
it, however that ends.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpexec.engine.exchange.wire import LINE, Channel, GangError, Tag, gone, silent

__all__ = ["Bytes", "Places", "mapped", "share_memory"]

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]
_TOKEN = b"memory"


class Places:
    """Where things lie in the memory of a member."""

    def __init__(self) -> None:
        self._places: dict[Any, slice] = {}
        self.size = 0

    def add(self, key: Any, nbytes: int) -> None:
        """Make room for something."""
        self._places[key] = slice(self.size, self.size + nbytes)
        self.size += -(-nbytes // LINE) * LINE

    def __getitem__(self, key: Any) -> slice:
        return self._places[key]


def share_memory(
    channels: Mapping[int, Channel], sizes: Mapping[int, int], rank: int, tag: Tag, limit: float
) -> dict[int, Bytes]:
    """Give every member memory that all members see.

    Args:
        channels: connections to the others, which are on this host.
        sizes: how many bytes each member provides.
        rank: of this member.
        tag: of the collective that it is for.
        limit: seconds.

    Returns:
        The memory of each member, by rank; of those that provide some.

    Raises:
        GangError: somebody did not answer.
        OSError: there is not enough memory.
    """
    found: dict[int, Bytes] = {}
    if sizes[rank]:
        fd = os.memfd_create("dpexec-gang", os.MFD_CLOEXEC)
        try:
            os.posix_fallocate(fd, 0, sizes[rank])
            found[rank] = mapped(fd, sizes[rank])
            for channel in channels.values():
                _hand_over(channel, fd, tag)
        finally:
            os.close(fd)
    deadline = time.monotonic() + limit
    for other, channel in channels.items():
        if sizes[other]:
            fd = _take(channel, tag, deadline, limit)
            try:
                found[other] = mapped(fd, sizes[other])
            finally:
                os.close(fd)
    return found


def mapped(fd: int, size: int) -> Bytes:
    """The memory behind a descriptor.

    Raises:
        OSError, ValueError: it has not so many bytes, or there is no room for them here.
    """
    memory = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return np.frombuffer(memory, np.uint8)


def _hand_over(channel: Channel, fd: int, tag: Tag) -> None:
    try:
        socket.send_fds(channel.sock, [_TOKEN], [fd])
    except OSError as error:
        raise gone(channel.name, error, tag) from error


def _take(channel: Channel, tag: Tag, deadline: float, limit: float) -> int:
    poll = select.poll()
    poll.register(channel.sock, select.POLLIN)
    if not poll.poll(max(deadline - time.monotonic(), 0.0) * 1000):
        raise silent([channel.name], limit, tag)
    try:
        token, fds, _, _ = socket.recv_fds(channel.sock, len(_TOKEN), 1)
    except OSError as error:
        raise gone(channel.name, error, tag) from error
    if token != _TOKEN or len(fds) != 1:
        for fd in fds:
            os.close(fd)
        raise GangError(f"{channel.name} ended the run at {tag}")
    return int(fds[0])
