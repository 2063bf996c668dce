"""Direct lines between two processes: each end sends messages at any time, which come in order.

A message is a frame of :mod:`.wire`; its number counts the messages of its direction. Nothing is
read from a line before both ends have shown that they know the secret of the run
(:mod:`.rendezvous`). Lines do not block, so that one thread can serve many.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine import kernels
from dpexec.engine.exchange.channels import BOX, DATA, HEADER, LENT, WAKE, Channel
from dpexec.engine.exchange.messages import Large, Room
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

if TYPE_CHECKING:
    from dpexec.engine.exchange.words import Bells, Inbox, Outbox

__all__ = ["Line", "wait"]

_AT_ONCE = 1 << 14  # bytes that are received at once, before the size of the frame is known
_BOTH = select.POLLIN | select.POLLOUT


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
        came: how many messages have come.
        messages: messages that came and were not taken yet.
        lost: why no more will come; None while the other end is there.
        most: bytes of the largest message that came through the connection itself.
    """

    def __init__(
        self, channel: Channel, limit: float, lends: bool = False, aligned: bool = True
    ) -> None:
        self._channel, self._aligned = channel, aligned
        self.messages: deque[memoryview] = deque()
        self.lost: str | None = None  # an error would know the frames that know this line
        self.most = 0
        self._sending: deque[Sending | bytes] = deque()  # most messages are small: bytes
        self._posted = self.came = 0
        self._data = memoryview(b"")  # received bytes that are no whole frame yet
        self._large: Large | None = None
        self._lender = Lender() if lends and channel.is_local else None
        self._borrower = Borrower(channel.name)
        self._descriptors: deque[int] = deque()
        self.inbox: Inbox | None = None
        self._bells: Bells | None = None
        self._outbox = self._new_box() if lends and channel.is_local else None
        if not channel.is_local:
            channel.notice_lost_host(limit)

    def _new_box(self) -> Outbox | None:
        """A box for small messages; its descriptor is sent first. None if there cannot be one."""
        if not kernels.available():
            return None
        from dpexec.engine.exchange.words import Outbox  # needs numba

        try:
            box = Outbox()
        except OSError:
            return None
        self._sending.append(Sending((0, 0), (), BOX, box.descriptor))
        return box

    @property
    def name(self) -> str:
        """The name of the other end in errors."""
        return self._channel.name

    def post(self, buffers: Sequence[memoryview | bytes]) -> None:
        """Put a message into the box, or in the queue; the next calls of :meth:`move` send it."""
        tag, nbytes, kind, new = (self._posted, 0), sum(map(len, buffers)), DATA, None
        self._posted += 1
        if self._lender is not None and nbytes >= LEAST:
            loan = self._lender.lend(buffers, nbytes)
            if loan is not None:
                (place, new), kind = loan, LENT
                buffers, nbytes = (place,), len(place)
        if self._outbox is not None and new is None and not self._sending:
            wakes = self._outbox.put(tag[0], kind, buffers, nbytes)
            if wakes is not None:
                if wakes:
                    self._sending.append(frame_of(tag, WAKE, (), 0))
                    self.flush()
                return
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
        if not self._sending:
            return
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
        moved = self._collect()
        if self._sending:
            try:
                moved = self._send()
            except OSError as error:  # a peer that takes no more may have said why
                self.lost = str(gone(self.name, error, message_tag(self.came)))
        try:
            moved = self._receive() or moved
        except OSError as error:
            self._collect()  # it may have come just before the end
            self.lost = self.lost or str(gone(self.name, error, message_tag(self.came)))
        except GangError as error:
            self.lost = str(error)
        return self._collect() or moved

    def hear(self) -> None:
        """Like :meth:`move`, but look into the socket only if the box has no message."""
        if self._sending or not self._collect():
            self.move()

    def _collect(self) -> bool:
        """Take the message in the box if it is the next one."""
        found = None if self.inbox is None else self.inbox.take(self.came)
        if found is None:
            return False
        kind, data = found
        try:
            if kind == LENT:
                message = self._borrower.take(memoryview(data), self._descriptors)
            else:
                message = self._aligned_copy(data) if self._aligned else memoryview(data)
        except GangError as error:
            self.lost = str(error)
            return True
        self.messages.append(message)
        self.came += 1
        return True

    def _aligned_copy(self, data: memoryview | bytes) -> memoryview:
        room = Room(self._channel.name)
        room(len(data))
        room.data[:] = data
        return room.data

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
        if self._outbox is not None and not sending:
            self._outbox.count(self._posted)
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
        self._collect()  # what was sent before lies in the box, if it was not there a moment ago
        received = self._data
        whole = received.obj
        due = (self.came, 0), (DATA, LENT), (BOX, WAKE)
        kind, nbytes = opened(received, self._channel.name, *due)
        end = HEADER.size + nbytes
        data = received[HEADER.size : end]
        if len(data) < nbytes:
            if kind == DATA:
                self._data, self._large = memoryview(b""), Large(self.name, data, nbytes)
            return False
        if kind == BOX:
            self._take_box()
        elif kind == WAKE:
            pass  # who was waiting is awake
        elif kind == LENT:
            self.messages.append(self._borrower.take(data, self._descriptors))
            self.came += 1
        elif kind == DATA and not self._aligned and isinstance(whole, bytes) and end == len(whole):
            self._take(data)
        elif kind == DATA:
            self._take(self._aligned_copy(data))
        else:
            raise GangError(bytes(data).decode(errors="replace"))
        self._data = received[end:]
        return True

    def _take_box(self) -> None:
        """Take the other end's box; without numba here, that end will not use it."""
        descriptor = self._descriptors.popleft()
        try:
            if kernels.available():
                from dpexec.engine.exchange.words import Bells, Inbox  # need numba

                self.inbox = Inbox(descriptor, self.came)
                self._bells = Bells([self.inbox])
        except (OSError, ValueError) as error:
            raise GangError(f"no way to memory of {self.name}: {error}") from error
        finally:
            os.close(descriptor)

    def _take(self, message: memoryview) -> None:
        """Keep a message that came through the connection itself."""
        self.messages.append(message)
        self.came += 1
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
            bells = self._bells
            if bells is not None and bells.wait((self,)):
                self.hear()
            deadline = time.monotonic() + seconds
            while not self.messages:
                if not self._wait(deadline):
                    return None
                self.hear()
            if bells is not None:
                bells.over()
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
            raise GangError(self.lost)
        left = deadline - time.monotonic()
        return left > 0 and bool(wait([self], left))

    def readable(self, seconds: float) -> bool:
        """Wait until the socket, not the box, has something to read; False after some seconds."""
        poll = select.poll()
        self.register(poll)
        return bool(poll.poll(seconds * 1000))

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


def wait(lines: Iterable[Line], seconds: float) -> list[Line]:
    """Wait until lines can send or receive; returns these, or an empty list after ``seconds``."""
    poll, found = select.poll(), {}
    ready: list[Line] = []
    for line in lines:  # loops, as many steps come through here
        if line.inbox is not None and not line.inbox.sleep(line.came):
            ready.append(line)
        found[line.register(poll)] = line
    for number, _ in poll.poll(0 if ready else seconds * 1000):
        line = found[number]
        if line not in ready:
            ready.append(line)
    for line in found.values():
        if line.inbox is not None:
            line.inbox.wake()
    return ready
