"""Direct lines from a client to the members of a gang: messages of any number of parts.

A message is its length, the sizes of its parts, and the parts, each of which begins where vector
instructions like arrays to begin. Nobody reads a line before both ends have shown that they know
the secret of the run (:mod:`.rendezvous`). Lines do not block, so that one thread can serve many.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from dpexec.engine.exchange.wire import Channel, GangError

__all__ = ["Line", "Parts", "wait"]

Parts = Sequence[memoryview]
"""A message: bytes, in some parts."""

_HEADER = struct.Struct("<4sIQ")  # magic, how many parts, bytes that follow
_MAGIC = b"dpxL"
_SIZE = np.dtype("<u8")
_ALIGNMENT = 64  # bytes
_PADDING = memoryview(bytes(_ALIGNMENT))
_MOST_PARTS = 1 << 24
_PROBES = 4  # of a peer that says nothing, before its connection is given up


class Line:
    """One end of a line.

    Args:
        channel: the connection.
        limit: seconds in which a host has to answer that is still there: its system does so,
            however long its processes take.

    Attributes:
        messages: what came and was not taken yet.
        lost: why there will be no more; None while the other end is there.
    """

    def __init__(self, channel: Channel, limit: float) -> None:
        self._channel = channel
        self.messages: deque[Parts] = deque()
        self.lost: GangError | None = None
        self._sending: deque[memoryview] = deque()
        self._header = memoryview(bytearray(_HEADER.size))
        self._body = memoryview(b"")
        self._room, self._count = self._header, 0  # what comes next, and of how many parts
        if channel.sock.family != socket.AF_UNIX:
            _notice_lost_hosts(channel.sock, limit)

    @property
    def name(self) -> str:
        """Who is at the other end, as people know it."""
        return self._channel.name

    def post(self, parts: Parts) -> None:
        """Let a message go out with the next calls of :meth:`move`."""
        sizes = np.array([part.nbytes for part in parts], _SIZE)
        head = sizes.tobytes()
        buffers: list[memoryview] = []
        at = len(head)
        for part in parts:
            gap = -at % _ALIGNMENT
            buffers += (_PADDING[:gap], part)
            at += gap + part.nbytes
        header = _HEADER.pack(_MAGIC, len(parts), at)
        self._sending += (b for b in (memoryview(header + head), *buffers) if b.nbytes)

    def move(self) -> None:
        """Send and receive as much as can be without waiting."""
        try:
            while self._sending and (count := self._channel.send(list(self._sending))):
                self._sent(count)
            while count := self._channel.receive(self._room):
                self._room = self._room[count:]
                if not self._room.nbytes:
                    self._go_on()
        except OSError as error:
            self.lost = GangError(f"{self.name} is gone ({error})")
        except GangError as error:
            self.lost = error

    def _sent(self, count: int) -> None:
        while count:
            first = self._sending.popleft()
            if count < first.nbytes:
                self._sending.appendleft(first[count:])
                return
            count -= first.nbytes

    def _go_on(self) -> None:
        """A header or a message is complete."""
        if self._body.nbytes:
            self.messages.append(self._parts())
            self._room, self._body = self._header, memoryview(b"")
            return
        magic, count, nbytes = _HEADER.unpack(self._header)
        if magic != _MAGIC or not 0 < count < _MOST_PARTS or nbytes < count * _SIZE.itemsize:
            raise GangError(f"{self.name} sent something else than a message")
        self._count, self._body = count, self._memory(nbytes)
        self._room = self._body

    def _memory(self, nbytes: int) -> memoryview:
        try:
            memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            raise GangError(
                f"{self.name} announces {nbytes} bytes, for which there is no memory"
            ) from error
        start = -memory.ctypes.data % _ALIGNMENT
        return memory[start : start + nbytes].data

    def _parts(self) -> Parts:
        sizes = np.frombuffer(self._body, _SIZE, self._count)
        at = sizes.nbytes
        found = []
        for size in sizes.tolist():
            at += -at % _ALIGNMENT
            found.append(self._body[at : at + size])
            at += size
        if at != self._body.nbytes:
            raise GangError(f"{self.name} sent a message whose parts do not fit together")
        return found

    @property
    def events(self) -> tuple[socket.socket, int]:
        """The socket, and the events that the line waits for."""
        channel = self._channel
        writes = bool(self._sending) or channel.waits_for_write  # TLS may have to, to receive
        channel.waits_for_write = channel.waits_for_read = False
        return channel.sock, select.POLLIN | (select.POLLOUT if writes else 0)

    # ---- one line alone

    def take(self, seconds: float) -> Parts | None:
        """The next message; None if none comes within some seconds.

        Raises:
            GangError: the other end is gone.
        """
        deadline = time.monotonic() + seconds
        while not self.messages:
            self.move()
            if not self.messages and not self._wait(deadline):
                return None
        return self.messages.popleft()

    def tell(self, parts: Parts, seconds: float) -> None:
        """Send a message.

        Raises:
            GangError: the other end is gone, or does not take it within some seconds.
        """
        self.post(parts)
        deadline = time.monotonic() + seconds
        while self._sending:
            self.move()
            if self._sending and not self._wait(deadline):
                raise GangError(f"{self.name} did not take a message within {seconds:g} s")

    def _wait(self, deadline: float) -> bool:
        """Wait until something can be sent or received; False if the deadline came first."""
        if self.lost is not None:
            raise self.lost
        left = deadline - time.monotonic()
        return left > 0 and wait([self], left)

    def interrupt(self) -> None:
        """End the connection, while another thread may be waiting for it."""
        self._channel.interrupt()

    def close(self) -> None:
        """Close the connection; once is enough."""
        self._channel.close()


def wait(lines: Iterable[Line], seconds: float) -> bool:
    """Wait until something can be sent or received on some lines; False if that takes too long."""
    poll = select.poll()
    for line in lines:
        poll.register(*line.events)
    return bool(poll.poll(seconds * 1000))


def _notice_lost_hosts(sock: socket.socket, limit: float) -> None:
    """Let the system end a connection whose other host does not answer any more."""
    pause = max(int(limit / (_PROBES + 1)), 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", pause),
        ("TCP_KEEPINTVL", pause),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", max(int(limit * 1000), 1)),
    ):
        if hasattr(socket, option):  # other systems have some of them only
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
