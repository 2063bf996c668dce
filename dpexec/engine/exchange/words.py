"""Words of other members, and boxes for messages: numbers in memory that all see (needs numba).

A word is the number of the latest step, or talk, in which its member has come to a certain point. A
member that waits spins for a while, then naps, and checks whether the others are still there.

Small messages of a line lie in a *box*. It holds one message, and a word counts what was sent, in
the box or through the socket. So a receiver can spin for that word before it sleeps
(:class:`Bells`). Who sleeps says so by another word, and is then woken through the socket.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.shared import Bytes, mapped, new_memory
from dpexec.engine.exchange.wire import Tag, look_after
from dpexec.engine.kernels.atomics import reached, read, write
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.mailboxes import ASLEEP, BYTES, HELD, KIND, TAKEN, post, rung
from dpexec.engine.threads.prepared import nap

__all__ = ["Bells", "Inbox", "Outbox", "Talk", "lacking", "read", "wait_for", "write"]

_PATIENCE = 10_000  # turns of spinning, some 0.2 ms
_NUMBERS = 1022  # the most numbers that a member tells at once; with word and count 8 KB
_BOX = 1 << 12  # bytes of a box; larger messages get rooms
_CONTENTS = 128  # bytes of its words
_SHORT = 1e-3
"""Seconds: who waits for a message spins so long, and not at all if the latest one took longer."""
_TURNS = 40_000
"""Turns of spinning in that time, as :func:`wait_politely` counts them."""


def lacking(words: Mapping[int, int], turn: int) -> list[int]:
    """The ranks of members whose word has not reached a number.

    Args:
        words: ranks by the address of their word.
        turn: the number that each word must reach.
    """
    return list(dict.fromkeys(rank for at, rank in words.items() if read(at) < turn))


def wait_for(
    channels: Mapping[int, Channel], words: Mapping[int, int], turn: int, limit: float, tag: Tag
) -> int | None:
    """Wait until the words of members have reached a number.

    Args:
        channels: connections to them, by rank.
        words: ranks by the address of their word.
        turn: the number that each word must reach.
        limit: seconds.
        tag: the collective that is waited for.

    Returns:
        The rank of the member that came last; None if all were there already.

    Raises:
        GangError: a member is gone, says that the run ends, or does not come within the limit.
    """
    last = None
    addresses = np.array([*words], np.int64)
    began = time.perf_counter()
    # A yield counts as few turns, however long others have the core: that spinning ends soon does
    # not mean that it was short.
    while not (found := reached(addresses.ctypes.data, len(addresses), turn, _PATIENCE)):
        look_after(channels, lambda: lacking(words, turn), began, limit, tag)
        last = next(iter(lacking(words, turn)), last)
        nap(began)
    return [*words.values()][found - 2] if found > 1 else last


class Talk:
    """Members of one host tell each other numbers through memory.

    A member writes to two places in turn. Its third numbers may overwrite the first ones: it has
    received the second ones of all members, and these had read its first ones before.

    Args:
        memory: by rank, the memory that the member writes to, ``Talk.size`` bytes.
        rank: of this member.
    """

    size = 2 * 8 * (_NUMBERS + 2)

    def __init__(self, memory: Mapping[int, Bytes], rank: int) -> None:
        self._rank = rank
        self._places = {r: m.view(np.int64).reshape(2, -1) for r, m in memory.items()}
        self._talks = 0

    def tell(
        self, own: Sequence[int], wait: Callable[[Mapping[int, int], int], None]
    ) -> list[list[int]] | None:
        """Tell numbers to all members; returns those of all, by rank, or None if they do not fit.

        Args:
            own: the numbers of this member.
            wait: waits for words, given their ranks by address and the number that they must reach.

        Raises:
            GangError: a member does not answer.
        """
        self._talks += 1
        turn = self._talks % 2
        mine = self._places[self._rank][turn]
        mine[1] = len(own)
        if len(own) <= _NUMBERS:
            mine[2 : 2 + len(own)] = own
        write(mine.ctypes.data, self._talks)
        others = {p[turn].ctypes.data: r for r, p in self._places.items() if r != self._rank}
        wait(others, self._talks)
        found = [self._places[rank][turn] for rank in sorted(self._places)]
        if any(place[1] > _NUMBERS for place in found):
            return None
        return [place[2 : 2 + place[1]].tolist() for place in found]


class Outbox:
    """The sender's end of a box.

    Raises:
        OSError: there is not enough memory.
    """

    def __init__(self) -> None:
        self.descriptor, memory = new_memory("dpexec-mailbox", _BOX)
        """The first is of its memory, for the receiver; who sends it closes it."""
        self._memory, self._address = memory.data, address(memory)
        self._words = memory.data.cast("q")
        self._words[TAKEN] = -1  # not free before the receiver knows it

    def put(
        self, number: int, kind: int, buffers: Sequence[memoryview | bytes], nbytes: int
    ) -> bool | None:
        """Put a message into the box; all before it must have been sent.

        Args:
            number: of the message.
            kind: of its frame.
            buffers: its bytes.
            nbytes: how many bytes it has.

        Returns:
            Whether the receiver has to be woken. None: the box is not free, or too small.
        """
        words = self._words
        if nbytes > _BOX - _CONTENTS or words[TAKEN] < words[HELD]:
            return None
        memory, at = self._memory, _CONTENTS
        for buffer in buffers:
            end = at + len(buffer)
            memory[at:end] = buffer
            at = end
        return bool(post.native(self._address, kind, nbytes, number + 1))

    def count(self, sent: int) -> None:
        """Tell the receiver how many messages were sent, the latest one through the socket."""
        write.native(self._address, sent)


class Inbox:
    """The receiver's end of a box.

    Args:
        descriptor: of its memory, see :class:`Outbox`; it stays open.
        number: how many messages have come.

    Attributes:
        address: of the word that counts what was sent.

    Raises:
        OSError, ValueError: it cannot be mapped.
    """

    def __init__(self, descriptor: int, number: int) -> None:
        memory = mapped(descriptor, _BOX)
        self._memory, self.address = memory.data, address(memory)
        self._words = memory.data.cast("q")
        self._words[TAKEN] = number

    def take(self, number: int) -> tuple[int, bytes] | None:
        """Kind and bytes of a message; None if it is not in the box.

        Args:
            number: of the message: all before it were taken.
        """
        words = self._words
        if words[HELD] != number + 1 or read.native(self.address) <= number:
            return None
        found = bytes(self._memory[_CONTENTS : _CONTENTS + words[BYTES]])
        kind, words[TAKEN] = words[KIND], number + 1
        return kind, found

    def sleep(self, number: int) -> bool:
        """Say that the receiver is about to sleep; False if the next message was sent already.

        Args:
            number: of the next message.
        """
        write.native(self.address + 8 * ASLEEP, 1)
        if read.native(self.address) > number:
            self.wake()
            return False
        return True

    def wake(self) -> None:
        """Say that the receiver is awake."""
        self._words[ASLEEP] = 0


class Counted(Protocol):
    """A line.

    Attributes:
        came: how many messages have come.
    """

    came: int


class Bells:
    """Spins until messages of several lines were sent.

    Waking a sleeper takes about 0.05 ms, and the system often lets two that were woken together
    share a core for a while.

    Args:
        boxes: the box of each line.
    """

    def __init__(self, boxes: Sequence[Inbox]) -> None:
        self._boxes, self._pairs = boxes, np.zeros((len(boxes), 2), np.int64)
        self._pairs[:, 0] = [box.address for box in boxes]
        self._numbers = memoryview(self._pairs.reshape(-1).data)
        self._address = address(self._pairs)
        self._short = True
        self._began: float | None = None

    def wait(self, lines: Sequence[Counted]) -> bool:
        """Spin until messages were sent, at most for a while, and once before :meth:`over`.

        Args:
            lines: the lines; the next message of each is waited for.

        Returns:
            Whether they were sent.
        """
        at = 1
        for line in lines:
            self._numbers[at] = line.came
            at += 2
        turns = _TURNS if self._short and self._began is None else 1
        self._began = self._began or time.perf_counter()
        return bool(rung.native(self._address, len(lines), turns))

    def over(self) -> None:
        """Called when what was waited for has come: waits that take long are not worth spinning."""
        if self._began is not None:
            self._short = time.perf_counter() - self._began < _SHORT
            self._began = None
