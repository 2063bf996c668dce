"""Direct lines between two processes: each sends messages when it likes, and takes them in turn.

A message is a frame of :mod:`.wire` with a number that counts those of its direction. Nobody reads
a line before both ends have shown that they know the secret of the run (:mod:`.rendezvous`). Lines
do not block, so that one thread can serve many.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence

from dpexec.engine.exchange.messages import Room
from dpexec.engine.exchange.wire import (
    Channel,
    GangError,
    Receiving,
    Sending,
    Tag,
    gone,
    silent,
)

__all__ = ["Line", "wait"]

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
        self.messages: deque[memoryview] = deque()
        self.lost: GangError | None = None
        self._sending: deque[Sending] = deque()
        self._posted = self._came = 0
        self._await_next()
        if channel.sock.family != socket.AF_UNIX:
            _notice_lost_hosts(channel.sock, limit)

    @property
    def name(self) -> str:
        """Who is at the other end, as people know it."""
        return self._channel.name

    def _await_next(self) -> None:
        self._room = Room(self.name)
        self._receiving = Receiving(_tag(self._came), self._room)

    def post(self, buffers: Sequence[memoryview]) -> None:
        """Let a message go out with the next calls of :meth:`move`."""
        self._sending.append(Sending(_tag(self._posted), buffers))
        self._posted += 1

    @property
    def is_sending(self) -> bool:
        """Whether something that was posted can still go out."""
        return bool(self._sending) and self.lost is None

    def move(self) -> bool:
        """Send and receive as much as can be without waiting; returns whether there was any."""
        moved = False
        if self.lost is not None:
            return False
        for act in (self._send, self._receive):  # who takes no more may have said why
            try:
                while act():
                    moved = True
            except OSError as error:
                self.lost = self.lost or gone(self.name, error, _tag(self._came))
            except GangError as error:
                self.lost = error
        return moved

    def _send(self) -> bool:
        if not self._sending or not self._sending[0].move(self._channel):
            return False
        if self._sending[0].done:
            self._sending.popleft()
        return True

    def _receive(self) -> bool:
        if not self._receiving.move(self._channel):
            return False
        if self._receiving.done:
            self.messages.append(self._room.data)
            self._came += 1
            self._await_next()
        return True

    @property
    def events(self) -> tuple[socket.socket, int]:
        """The socket, and the events that the line waits for."""
        channel = self._channel
        writes = bool(self._sending) or channel.waits_for_write  # TLS may have to, to receive
        channel.waits_for_write = channel.waits_for_read = False
        return channel.sock, select.POLLIN | (select.POLLOUT if writes else 0)

    # ---- one line alone

    def take(self, seconds: float) -> memoryview | None:
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

    def tell(self, buffers: Sequence[memoryview], limit: float) -> None:
        """Send a message.

        Args:
            buffers: what it holds.
            limit: seconds in which nothing may happen.

        Raises:
            GangError: the other end is gone, or takes nothing.
        """
        self.post(buffers)
        deadline = time.monotonic() + limit
        while self._sending:
            if self.move():
                deadline = time.monotonic() + limit
            elif not self._wait(deadline):
                raise silent([self.name], limit, _tag(self._posted - 1))

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


def _tag(number: int) -> Tag:
    return Tag(number, 0, f"message {number}")


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
