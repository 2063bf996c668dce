"""Frames of raw bytes between the members of a gang, with a limit for every wait.

A frame is a header of fixed size and the bytes of arrays. Nothing that comes from a peer is ever
unpickled. One loop serves all connections at once, over sockets that do not block, so two members
never wait for each other to receive.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpexec.engine.exchange.channels import DATA, HEADER, LAST_WORDS, Channel

__all__ = [
    "SMALL",
    "GangError",
    "Place",
    "Receiving",
    "Sending",
    "Tag",
    "exchange",
    "frame_of",
    "gone",
    "into",
    "last_words",
    "look_after",
    "message_tag",
    "opened",
    "say_goodbye",
    "silent",
]

_MAGIC = b"dpxG"
_TEXT_BYTES = 4096  # the most bytes of last words
SMALL = 1 << 10
"""Bytes of frames that are sent in one piece."""
_GRACE = 1.0  # seconds to tell peers that a run ends early

Place = Callable[[int], Sequence[memoryview]]
"""Gives the memory for a frame of a certain number of bytes."""


def into(*buffers: memoryview) -> Place:
    """The place of a frame that fills some buffers; without buffers, that of an empty frame."""
    return lambda nbytes: buffers


class GangError(RuntimeError):
    """A collective cannot be completed: a member failed, is gone, or does not answer.

    Args:
        message: what happened, and to which member.
    """


class Tag(NamedTuple):
    """The collective of a step that a frame belongs to.

    Args:
        step: number of the step.
        number: of the collective in the plan.
        text: the name of the collective in errors.
    """

    step: int
    number: int
    text: str

    def __str__(self) -> str:
        return f"step {self.step}, {self.text}"


def frame_of(
    tag: tuple[int, int] | Tag, kind: int, buffers: Sequence[memoryview | bytes], nbytes: int
) -> bytes:
    """A small frame, in one piece.

    Args:
        tag: what it belongs to, see :class:`Sending`.
        kind: kind of the frame.
        buffers: its contents.
        nbytes: number of bytes in the buffers.
    """
    return b"".join((HEADER.pack(_MAGIC, kind, tag[0], tag[1], nbytes), *buffers))


class Sending:
    """A frame while it is sent.

    Args:
        tag: numbers of the step and of the collective that it belongs to.
        buffers: the bytes of the frame.
        kind: the kind of the frame, such as :data:`.channels.DATA`.
        descriptor: a file descriptor to send along; it is closed then.

    Attributes:
        done: whether all is sent.
    """

    def __init__(
        self,
        tag: tuple[int, int] | Tag,
        buffers: Sequence[memoryview | bytes],
        kind: int = DATA,
        descriptor: int | None = None,
    ) -> None:
        nbytes = sum(map(len, buffers))
        self._left: list[memoryview | bytes]
        if nbytes <= SMALL:
            self._left = [frame_of(tag, kind, buffers, nbytes)]
        else:
            self._left = [HEADER.pack(_MAGIC, kind, tag[0], tag[1], nbytes), *filter(len, buffers)]
        self._descriptor = descriptor
        self.done = False

    @classmethod
    def rest(cls, frame: bytes, sent: int) -> Sending:
        """The rest of a frame of which some bytes were sent.

        Args:
            frame: the whole frame.
            sent: number of bytes that were sent.
        """
        found = cls((0, 0), ())
        found._left = [memoryview(frame)[sent:]]
        return found

    def close(self) -> None:
        """Close the descriptor: it is sent, or never will be."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def move(self, channel: Channel) -> bool:
        """Send as much as possible without waiting; returns whether anything was sent."""
        left = self._left
        count = moved = channel.send(left, self._descriptor)
        if moved and self._descriptor is not None:
            self.close()
        while count:
            first = left[0]
            if count < len(first):
                left[0] = memoryview(first)[count:]
                break
            count -= len(first)
            del left[0]
        self.done = not left
        return moved > 0


class Receiving:
    """A frame while it is received.

    Args:
        tag: the collective that it must belong to.
        place: gives the memory for its bytes.
    """

    def __init__(self, tag: Tag, place: Place) -> None:
        self._tag, self._place = tag, place
        self._header = memoryview(bytearray(HEADER.size))
        self._left: list[memoryview] = [self._header]
        self._known = False
        self._last_words: memoryview | None = None

    def move(self, channel: Channel) -> bool:
        """Receive the bytes that are there; returns whether there were any.

        Raises:
            GangError: the member says that the run ends, or sent an unexpected frame.
        """
        count = channel.receive(self._left[0])
        if not count:
            return False
        rest = self._left[0][count:]
        if len(rest):
            self._left[0] = rest
            self._tell(channel)
            return True
        del self._left[0]
        if not self._known:
            self._known = True
            self._left = self._open(channel)
        self._tell(channel)
        if not self._left and self._last_words is not None:
            raise GangError(bytes(self._last_words).decode(errors="replace"))
        return True

    def _tell(self, channel: Channel) -> None:
        """Tell the connection how much is left; of the next frame, nothing is known."""
        channel.expect(sum(map(len, self._left)))

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


def opened(
    header: memoryview,
    name: str,
    tag: tuple[int, int] | Tag,
    kinds: Sequence[int],
    notices: Sequence[int] = (),
) -> tuple[int, int]:
    """The kind of a frame, and how many bytes follow its header.

    Args:
        header: the header; more bytes may follow it.
        name: the sender's name in errors.
        tag: the tag that is due; a plain tuple is that of a line's message.
        kinds: kinds of frames that may come; last words may always come.
        notices: kinds of empty frames that may come at any time.

    Raises:
        GangError: another frame came.
    """
    magic, kind, step, number, nbytes = HEADER.unpack_from(header)
    if magic == _MAGIC and step == tag[0] and number == tag[1] and kind in kinds:
        return kind, nbytes
    if magic == _MAGIC and kind in notices and not nbytes:
        return kind, nbytes
    if magic == _MAGIC and kind == LAST_WORDS and 0 < nbytes <= _TEXT_BYTES:
        return kind, nbytes
    due = tag if isinstance(tag, Tag) else message_tag(tag[0])
    raise GangError(f"{name} sent {(magic, kind, step, number)} when {due} was due")


def message_tag(number: int) -> Tag:
    """The tag of a line's message."""
    return Tag(number, 0, f"message {number}")


def exchange(
    channels: Mapping[int, Channel],
    tag: Tag,
    sends: Mapping[int, Sequence[memoryview]],
    places: Mapping[int, Place],
    limit: float,
) -> None:
    """Send a frame to some members and receive one from some, all at once.

    Args:
        channels: the connections, by rank.
        tag: the tag of the frames.
        sends: the buffers to send, by rank.
        places: the places of the frames to receive, by rank.
        limit: seconds without any progress after which it fails.

    Raises:
        GangError: a member did not answer, closed its connection, or ends the run.
    """
    sending = {rank: Sending(tag, buffers) for rank, buffers in sends.items()}
    receiving = {rank: Receiving(tag, place) for rank, place in places.items()}

    def lost(rank: int, error: OSError) -> None:
        if rank not in receiving:  # otherwise its last words may still be read
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
    """Go on with transfers, and remove those that are done or whose connection is lost.

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
    """The error for a member that has closed its connection.

    Args:
        name: of the member.
        error: the error of the system.
        tag: the collective that was under way.
    """
    return GangError(f"{name} is gone ({error}) at {tag}")


def silent(names: Iterable[str], limit: float, tag: Tag) -> GangError:
    """The error for members that do not answer.

    Args:
        names: of the members.
        limit: seconds that were waited.
        tag: the collective that was waited for.
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
    """Check that members are still there, during a wait for something else than their frames.

    Args:
        channels: the connections, by rank.
        lacking: gives the ranks of the members that are waited for.
        since: when the wait began, by ``time.perf_counter``; None: it has no time limit.
        limit: seconds that the wait may take.
        tag: the collective that is waited for.

    Raises:
        GangError: a member is gone, or says that the run ends, or the time limit is over.
    """
    for rank in lacking():
        if channels[rank].ends() and rank in lacking():
            exchange(channels, tag, {}, {rank: into()}, limit)  # raises its last words
    if since is not None and time.perf_counter() - since > limit:
        names = [channels[rank].name for rank in lacking()]
        if names:
            raise silent(names, limit, tag)


def last_words(name: str, step: int, error: BaseException) -> str:
    """The text that the others are sent when a member fails.

    Args:
        name: of the member.
        step: number of the step.
        error: the reason; a GangError already names the member that failed first.
    """
    if isinstance(error, GangError):
        return str(error)
    first = (str(error) or type(error).__name__).strip().splitlines()[0]
    return f"{name} failed at step {step}: {first[:500]}"


def say_goodbye(channels: Mapping[int, Channel], text: str) -> None:
    """Tell the members that the run ends early, and close the connections.

    Args:
        channels: the connections, by rank.
        text: the reason, for members that wait for an answer.
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
