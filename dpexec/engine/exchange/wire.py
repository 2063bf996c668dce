"""Frames of raw bytes between the members of a gang, with a limit for every wait.

A frame is a header of fixed size and the bytes of arrays; nothing that comes from a peer is ever
unpickled. All connections are served at once by one loop over sockets that do not block, so that
nobody waits for a peer that waits for him.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DATA",
    "HEADER",
    "LAST_WORDS",
    "LENT",
    "LINE",
    "Channel",
    "GangError",
    "Place",
    "Receiving",
    "Sending",
    "Tag",
    "exchange",
    "gone",
    "into",
    "last_words",
    "look_after",
    "opened",
    "say_goodbye",
    "silent",
]

LINE = 64
"""Bytes of a line of the cache, where vector instructions like arrays to begin."""

_HEADER = struct.Struct("<4sIQQQ")  # magic, kind, step, number, bytes that follow
HEADER = _HEADER.size
_MAGIC = b"dpxG"
DATA, LAST_WORDS, LENT = 1, 2, 3
"""Kinds of frames: with bytes of arrays, with why the run ends, with where a message lies."""
_BUFFERS_AT_ONCE = 64
_TEXT_BYTES = 4096
_DESCRIPTORS = socket.CMSG_SPACE(8 * 4) if hasattr(socket, "CMSG_SPACE") else 0
_CLOSED_BY_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # other systems do not pass any
_GRACE = 1.0  # seconds in which peers are told that a run ends early

Place = Callable[[int], Sequence[memoryview]]
"""Given how many bytes will come, the memory that takes them."""


def into(*buffers: memoryview) -> Place:
    """The place of a frame that fills some memory; without any, of one that is just a sign."""
    return lambda nbytes: buffers


class GangError(RuntimeError):
    """A collective cannot be completed: a member failed, is gone, or does not answer.

    Args:
        message: what happened, and who it was.
    """


@dataclass(frozen=True, slots=True)
class Tag:
    """What a frame belongs to.

    Args:
        step: number of the step.
        number: of the collective in the plan.
        text: what people call it.
    """

    step: int
    number: int
    text: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.text}"


class Channel:
    """An authenticated connection to another member.

    Args:
        sock: the connection.
        name: the member, as people know it: its worker and replicas.

    Attributes:
        is_local: whether the other end is a process of this host, to which descriptors can go.
    """

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setblocking(False)
        self.sock, self.name = sock, name
        self.waits_for_write = self.waits_for_read = False
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self.is_local = sock.family == socket.AF_UNIX

    def send(self, buffers: Sequence[memoryview], descriptor: int | None = None) -> int:
        """Send what can be sent now; returns how many bytes, 0 for none.

        Args:
            buffers: the bytes.
            descriptor: goes with the first of them.
        """
        try:
            if self._encrypted:
                return self.sock.send(buffers[0])
            if descriptor is not None:
                return socket.send_fds(self.sock, buffers, [descriptor])
            if len(buffers) == 1:
                return self.sock.send(buffers[0])
            return self.sock.sendmsg(buffers[:_BUFFERS_AT_ONCE])
        except (BlockingIOError, ssl.SSLWantWriteError):
            self.waits_for_write = True
        except ssl.SSLWantReadError:
            self.waits_for_read = True
        return 0

    def receive(self, buffer: memoryview) -> int:
        """Receive what is there; returns how many bytes, 0 for none.

        Raises:
            ConnectionError: the peer has closed the connection.
        """
        try:
            count = self.sock.recv_into(buffer)
        except (BlockingIOError, ssl.SSLWantReadError):
            self.waits_for_read = True
            return 0
        except ssl.SSLWantWriteError:
            self.waits_for_write = True
            return 0
        if not count:
            raise ConnectionResetError("closed")
        return count

    def receive_all(self, nbytes: int) -> tuple[memoryview, list[int]]:
        """Receive what is there, up to so many bytes, with descriptors; nothing: none is there.

        Raises:
            ConnectionError: the peer has closed the connection.
        """
        if not self.is_local:
            data = bytearray(nbytes)
            return memoryview(data)[: self.receive(memoryview(data))], []
        try:
            got, found, _, _ = self.sock.recvmsg(nbytes, _DESCRIPTORS, _CLOSED_BY_EXEC)
        except BlockingIOError:
            self.waits_for_read = True
            return memoryview(b""), []
        if not got:
            raise ConnectionResetError("closed")
        return memoryview(got), _descriptors_in(found) if found else []

    def ends(self) -> bool:
        """Whether the peer says next that the run ends, or has closed the connection.

        Nothing is taken of what it sent; an encrypted connection cannot be asked.
        """
        try:
            head = self.sock.recv(_HEADER.size, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not head or (len(head) == _HEADER.size and _HEADER.unpack(head)[1] == LAST_WORDS)

    def interrupt(self) -> None:
        """End the connection, while another thread may be waiting for it."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()


def _descriptors_in(found: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came with some bytes."""
    descriptors = array.array("i")
    for _, _, each in found:
        descriptors.frombytes(each)
    return descriptors.tolist()


class Sending:
    """What is left to send of a frame.

    Args:
        tag: what the frame belongs to.
        buffers: what it holds.
        kind: what it is.
        descriptor: goes along; is closed.
    """

    def __init__(
        self,
        tag: Tag,
        buffers: Sequence[memoryview],
        kind: int = DATA,
        descriptor: int | None = None,
    ) -> None:
        nbytes = sum(map(len, buffers))
        header = _HEADER.pack(_MAGIC, kind, tag.step, tag.number, nbytes)
        self._left = [memoryview(header), *filter(len, buffers)]
        self._descriptor = descriptor

    def close(self) -> None:
        """What goes along has gone, or never will."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def move(self, channel: Channel) -> bool:
        """Send some; returns whether anything was sent."""
        count = moved = channel.send(self._left, self._descriptor)
        if moved:
            self.close()
        while count:
            first = self._left[0]
            if count < len(first):
                self._left[0] = first[count:]
                break
            count -= len(first)
            del self._left[0]
        return moved > 0

    @property
    def done(self) -> bool:
        """Whether all is sent."""
        return not self._left


class Receiving:
    """What is still to come of a frame.

    Args:
        tag: what the frame belongs to.
        place: where to put what it holds.
    """

    def __init__(self, tag: Tag, place: Place) -> None:
        self._tag, self._place = tag, place
        self._header = memoryview(bytearray(_HEADER.size))
        self._left: list[memoryview] = [self._header]
        self._known = False
        self._last_words: memoryview | None = None

    def move(self, channel: Channel) -> bool:
        """Receive some; returns whether anything came.

        Raises:
            GangError: the member says that the run ends, or sent something else than it should.
        """
        count = channel.receive(self._left[0])
        if not count:
            return False
        rest = self._left[0][count:]
        if len(rest):
            self._left[0] = rest
            return True
        del self._left[0]
        if not self._known:
            self._known = True
            self._left = self._open(channel)
        if not self._left and self._last_words is not None:
            raise GangError(bytes(self._last_words).decode(errors="replace"))
        return True

    def _open(self, channel: Channel) -> list[memoryview]:
        kind, nbytes = opened(self._header, channel.name, self._tag, (DATA,))
        if kind == LAST_WORDS:
            self._last_words = memoryview(bytearray(nbytes))
            return [self._last_words]
        buffers = [buffer for buffer in self._place(nbytes) if len(buffer)]
        expected = sum(len(buffer) for buffer in buffers)
        if expected != nbytes:
            raise GangError(
                f"{channel.name} sent {nbytes} bytes at {self._tag}, but {expected} were due"
            )
        return buffers

    @property
    def done(self) -> bool:
        """Whether all has come."""
        return not self._left


def opened(header: memoryview, name: str, tag: Tag, kinds: Sequence[int]) -> tuple[int, int]:
    """What follows a header: the kind of the frame, and how many bytes.

    Args:
        header: that.
        name: of who sent it.
        tag: what is due.
        kinds: of frames that may come; and last words may.

    Raises:
        GangError: something else came.
    """
    magic, kind, step, number, nbytes = _HEADER.unpack(header)
    if magic == _MAGIC and kind == LAST_WORDS and 0 < nbytes <= _TEXT_BYTES:
        return kind, nbytes
    if (magic, step, number) != (_MAGIC, tag.step, tag.number) or kind not in kinds:
        raise GangError(f"{name} sent {(magic, kind, step, number)} when {tag} was due")
    return kind, nbytes


def exchange(
    channels: Mapping[int, Channel],
    tag: Tag,
    sends: Mapping[int, Sequence[memoryview]],
    places: Mapping[int, Place],
    limit: float,
) -> None:
    """Send a frame to some members and take one from some, all at once.

    Args:
        channels: the connections, by rank.
        tag: what the frames belong to.
        sends: what goes to whom: buffers of bytes.
        places: where to put what comes from whom.
        limit: seconds in which nothing may happen, before those who did not answer are named.

    Raises:
        GangError: somebody did not answer, closed its connection, or ends the run.
    """
    sending = {rank: Sending(tag, buffers) for rank, buffers in sends.items()}
    receiving = {rank: Receiving(tag, place) for rank, place in places.items()}

    def lost(rank: int, error: OSError) -> None:
        if rank not in receiving:  # else it may have said why
            raise gone(channels[rank].name, error, tag) from error

    deadline = time.monotonic() + limit
    while sending or receiving:
        moved = _move(channels, sending, lost)
        moved |= _move(channels, receiving, lost)
        if moved:
            deadline = time.monotonic() + limit
        elif not _wait([channels[rank] for rank in {*sending, *receiving}], deadline):
            raise silent((channels[rank].name for rank in sorted(receiving or sending)), limit, tag)


def _move(
    channels: Mapping[int, Channel],
    transfers: dict[int, Any],
    lost: Callable[[int, OSError], None],
) -> bool:
    """Go on with transfers by rank, and forget those that are done, or whose connection is lost.

    Returns whether anything was moved.
    """
    moved = False
    for rank in list(transfers):
        try:
            moved |= transfers[rank].move(channels[rank])
        except OSError as error:
            del transfers[rank]
            lost(rank, error)
        else:
            if transfers[rank].done:
                del transfers[rank]
    return moved


def gone(name: str, error: OSError, tag: Tag) -> GangError:
    """What is raised when a member has closed its connection.

    Args:
        name: of the member.
        error: what the system says.
        tag: what was under way.
    """
    return GangError(f"{name} is gone ({error}) at {tag}")


def silent(names: Iterable[str], limit: float, tag: Tag) -> GangError:
    """What is raised when members do not answer.

    Args:
        names: of the members.
        limit: seconds that were waited.
        tag: for what.
    """
    return GangError(f"{', '.join(names)} did not answer for {limit:g} s at {tag}")


def _wait(channels: Sequence[Channel], deadline: float) -> bool:
    """Wait until something can be sent or received; False if the deadline came first."""
    poll = select.poll()
    for channel in channels:
        events = channel.waits_for_write * select.POLLOUT | channel.waits_for_read * select.POLLIN
        channel.waits_for_write = channel.waits_for_read = False
        poll.register(channel.sock, events)
    left = max(deadline - time.monotonic(), 0.0)
    return bool(poll.poll(left * 1000))


def look_after(
    channels: Mapping[int, Channel],
    lacking: Callable[[], Collection[int]],
    since: float | None,
    limit: float,
    tag: Tag,
) -> None:
    """Look whether members are still there for which one waits, though no frame is due from them.

    Args:
        channels: the connections, by rank.
        lacking: the ranks of those who have not come yet.
        since: when the wait began, by ``time.perf_counter``; None: it has no end.
        limit: seconds that it may take.
        tag: what is waited for.

    Raises:
        GangError: one is gone, says that the run ends, or the limit is over.
    """
    for rank in lacking():
        if channels[rank].ends() and rank in lacking():
            exchange(channels, tag, {}, {rank: into()}, limit)  # says why
    if since is not None and time.perf_counter() - since > limit:
        names = [channels[rank].name for rank in lacking()]
        if names:
            raise silent(names, limit, tag)


def last_words(name: str, step: int, error: BaseException) -> str:
    """What the others are told when a member fails.

    Args:
        name: of the member.
        step: number of the step.
        error: why; a GangError already tells who failed first.
    """
    if isinstance(error, GangError):
        return str(error)
    first = (str(error) or type(error).__name__).strip().splitlines()[0]
    return f"{name} failed at step {step}: {first[:500]}"


def say_goodbye(channels: Mapping[int, Channel], text: str) -> None:
    """Tell the members that the run ends early, and close the connections.

    Args:
        channels: the connections, by rank.
        text: why, for those who wait for an answer.
    """
    words = memoryview(text.encode()[:_TEXT_BYTES])
    sending = {rank: Sending(Tag(0, 0, ""), [words], LAST_WORDS) for rank in channels}
    deadline = time.monotonic() + _GRACE
    while sending:
        moved = _move(channels, sending, lambda *_: None)
        if sending and not moved and not _wait([channels[r] for r in sending], deadline):
            break
    for channel in channels.values():
        channel.close()
