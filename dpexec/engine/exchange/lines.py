"""Direct lines between two processes: each end sends messages at any time, which come in order.

A message is a frame of :mod:`.wire`; its number counts the messages of its direction. Nothing is
read from a line before both ends have shown that they know the secret of the run
(:mod:`.rendezvous`). Lines do not block, so that one thread can serve many.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from dpexec.engine.exchange.channels import DATA, HEADER, LENT, Channel
from dpexec.engine.exchange.messages import Room
from dpexec.engine.exchange.shared import LEAST, Borrower, Lender
from dpexec.engine.exchange.wire import (
    SMALL,
    GangError,
    Sending,
    frame_of,
    gone,
    message_tag,
    opened,
    silent,
)

__all__ = ["Line", "wait"]

_AT_ONCE = 1 << 14  # bytes that are received at once, before the size of the frame is known
_BOTH = select.POLLIN | select.POLLOUT
_PROBES = 4  # unanswered probes of a silent peer after which its connection is given up


class Line:
    """One end of a line.

    Args:
        channel: the connection.
        limit: seconds after which a silent host counts as lost. A living host's system answers
            probes by itself, however busy its processes are.
        lends: whether messages may lie in shared memory, if both ends are on one host; the other
            end must be a line, too.
        aligned: whether arrays of all messages begin at a cache line. Else a small message stays in
            the bytes that were received: its arrays may lie anywhere, and are read-only.

    Attributes:
        messages: messages that came and were not taken yet.
        lost: why no more will come; None while the other end is there.
        most: bytes of the largest message that came through the connection itself.
    """

    def __init__(
        self, channel: Channel, limit: float, lends: bool = False, aligned: bool = True
    ) -> None:
        self._channel, self._aligned = channel, aligned
        self.messages: deque[memoryview] = deque()
        self.lost: GangError | None = None
        self.most = 0
        self._sending: deque[Sending | bytes] = deque()  # most messages are small: bytes
        self._posted = self._came = 0
        self._data = memoryview(b"")  # received bytes that are no whole frame yet
        self._large: _Large | None = None
        self._lender = Lender() if lends and channel.is_local else None
        self._borrower = Borrower(channel.name)
        self._descriptors: deque[int] = deque()
        self._poll: Any = None  # waits for bytes to receive; made at the first wait
        if not channel.is_local:
            _notice_lost_hosts(channel.sock, limit)

    @property
    def name(self) -> str:
        """The name of the other end in errors."""
        return self._channel.name

    def post(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Put a message in the queue; the next calls of :meth:`move` send it."""
        tag, nbytes, kind, new = (self._posted, 0), sum(map(len, buffers)), DATA, None
        self._posted += 1
        if self._lender is not None and nbytes >= LEAST:
            loan = self._lender.lend(buffers, nbytes)
            if loan is not None:
                (place, new), kind = loan, LENT
                buffers, nbytes = (place,), len(place)
        if nbytes <= SMALL and new is None:
            self._sending.append(frame_of(tag, kind, buffers, nbytes))
        else:
            self._sending.append(Sending(tag, buffers, kind, new))

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to do before its socket has something to read."""
        quiet = self._channel.is_local and self.lost is None
        return quiet and not self.messages and not self._sending

    @property
    def is_sending(self) -> bool:
        """Whether posted messages are still to be sent, and can be."""
        return bool(self._sending) and self.lost is None

    def flush(self) -> None:
        """Send as much as possible without waiting; may leave received bytes unread."""
        if self._channel.is_local and self.lost is None:
            try:
                self._send()
            except OSError:  # the next receive notices it
                return
        else:
            self.move()

    def move(self) -> bool:
        """Send and receive as much as possible without waiting; returns whether anything moved."""
        if self.lost is not None:
            return False
        moved = False
        if self._sending:
            try:
                moved = self._send()
            except OSError as error:  # a peer that takes no more may have said why
                self.lost = gone(self.name, error, message_tag(self._came))
        try:
            return self._receive() or moved
        except OSError as error:
            self.lost = self.lost or gone(self.name, error, message_tag(self._came))
        except GangError as error:
            self.lost = error
        return moved

    def _send(self) -> bool:
        moved, sending, channel = False, self._sending, self._channel
        while sending:
            first = sending[0]
            if isinstance(first, bytes):
                count = channel.send((first,))
                if 0 < count < len(first):
                    sending[0] = Sending.rest(first, count)
                done = count == len(first)
            else:
                count, done = first.move(channel), first.done
            if not count:
                break
            moved = True
            if done:
                sending.popleft()
        return moved

    def _receive(self) -> bool:
        moved, channel = False, self._channel
        while True:
            if self._large is not None:
                count = self._large.move(channel)
                if self._large.done:
                    large, self._large = self._large, None
                    self._take(large.data)
            else:
                data, descriptors = channel.receive_all(_AT_ONCE)
                count = len(data)
                if descriptors:
                    self._descriptors += descriptors
                self._data = memoryview(bytes(self._data) + data) if self._data else data
                while len(self._data) >= HEADER.size and self._open():
                    pass
            moved = moved or count > 0
            if not count or (count < _AT_ONCE and channel.is_local):  # no more bytes were there
                return moved

    def _open(self) -> bool:
        """Take the next frame from the received bytes; False if it is not whole yet."""
        received = self._data
        whole = received.obj
        kind, nbytes = opened(received, self._channel.name, (self._came, 0), (DATA, LENT))
        end = HEADER.size + nbytes
        data = received[HEADER.size : end]
        if len(data) < nbytes:
            if kind == DATA:
                self._data, self._large = memoryview(b""), _Large(self.name, data, nbytes)
            return False
        if kind == LENT:
            self.messages.append(self._borrower.take(data, self._descriptors))
            self._came += 1
        elif kind == DATA and not self._aligned and isinstance(whole, bytes) and end == len(whole):
            self._take(data)
        elif kind == DATA:
            room = Room(self._channel.name)
            room(nbytes)
            room.data[:] = data
            self._take(room.data)
        else:
            raise GangError(bytes(data).decode(errors="replace"))
        self._data = received[end:]
        return True

    def _take(self, message: memoryview) -> None:
        """Keep a message that came through the connection itself."""
        self.messages.append(message)
        self._came += 1
        if len(message) > self.most:
            self.most = len(message)

    def register(self, poll: Any) -> int:
        """Register the line's events with a ``select.poll`` object; returns its descriptor."""
        channel = self._channel
        writes = bool(self._sending)
        if not channel.is_local:
            writes = writes or channel.waits_for_write  # TLS may have to write to receive
        channel.waits_for_write = channel.waits_for_read = False
        number = channel.sock.fileno()
        poll.register(number, _BOTH if writes else select.POLLIN)
        return number

    # ---- one line alone

    def take(self, seconds: float) -> memoryview | None:
        """The next message; None if none comes within some seconds.

        Raises:
            GangError: the other end is gone.
        """
        if not self.is_quiet:
            self.move()
        if not self.messages:
            deadline = time.monotonic() + seconds
            while not self.messages:
                if not self._wait(deadline):
                    return None
                self.move()
        return self.messages.popleft()

    def tell(self, buffers: Sequence[memoryview | bytes], limit: float) -> None:
        """Send a message, and wait until it is sent.

        Args:
            buffers: its bytes.
            limit: seconds after which an end that takes nothing is given up.

        Raises:
            GangError: the other end is gone, or takes nothing.
        """
        self.post(buffers)
        self.flush()
        if not self._sending:
            return
        deadline = time.monotonic() + limit
        while self._sending:
            if self.move():
                deadline = time.monotonic() + limit
            elif not self._wait(deadline):
                raise silent([self.name], limit, message_tag(self._posted - 1))

    def _wait(self, deadline: float) -> bool:
        """Wait until something can be sent or received; False if the deadline came first."""
        if self.lost is not None:
            raise self.lost
        left = deadline - time.monotonic()
        if left <= 0 or self._sending or not self._channel.is_local:
            return left > 0 and bool(wait([self], left))
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._channel.sock.fileno(), select.POLLIN)
        return bool(self._poll.poll(left * 1000))

    def interrupt(self) -> None:
        """End the connection, while another thread may be waiting for it."""
        self._channel.interrupt()

    def close(self) -> None:
        """Close the connection; further calls do nothing."""
        self._channel.close()
        for sending in self._sending:
            if isinstance(sending, Sending):
                sending.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())


class _Large:
    """A large message while it comes in.

    Args:
        name: of the sender.
        begun: its first bytes, which have come.
        nbytes: the bytes of the whole message.

    Raises:
        GangError: there is no memory for it.
    """

    def __init__(self, name: str, begun: memoryview, nbytes: int) -> None:
        room = Room(name)
        room(nbytes)
        self.data = room.data
        self.data[: len(begun)] = begun
        self._left = self.data[len(begun) :]

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return not len(self._left)

    def move(self, channel: Channel) -> int:
        """Receive some; returns how many bytes."""
        count = channel.receive(self._left)
        self._left = self._left[count:]
        return count


def wait(lines: Iterable[Line], seconds: float) -> list[Line]:
    """Wait until lines can send or receive; returns these, or an empty list after ``seconds``."""
    poll, found = select.poll(), {}
    for line in lines:
        found[line.register(poll)] = line
    ready = []
    for number, _ in poll.poll(seconds * 1000):
        ready.append(found[number])
    return ready


def _notice_lost_hosts(sock: socket.socket, limit: float) -> None:
    """Let the system end the connection when the other host does not answer any more."""
    pause = max(int(limit / (_PROBES + 1)), 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", pause),
        ("TCP_KEEPINTVL", pause),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", max(int(limit * 1000), 1)),
    ):
        if hasattr(socket, option):  # systems other than Linux lack some of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
