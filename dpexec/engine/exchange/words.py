"""Waiting for words of other members: numbers in memory that all see (needs numba).

A word tells how far its member has come: it is the number of the latest step, or talk, in which
the member was there. Waiting is spinning for a while, then napping; meanwhile one looks whether the
others are still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.shared import Bytes
from dpexec.engine.exchange.wire import Tag, look_after
from dpexec.engine.kernels.atomics import reached, read, write
from dpexec.engine.threads.prepared import nap

__all__ = ["Talk", "lacking", "read", "wait_for", "write"]

_PATIENCE = 10_000  # turns of spinning, some 0.2 ms
_NUMBERS = 1022  # that a member can tell at once; with the word and their count, 8 KB


def lacking(words: Mapping[int, int], turn: int) -> list[int]:
    """The ranks of members that have not come so far.

    Args:
        words: ranks by the address of their word.
        turn: what each must be at least.
    """
    return list(dict.fromkeys(rank for at, rank in words.items() if read(at) < turn))


def wait_for(
    channels: Mapping[int, Channel], words: Mapping[int, int], turn: int, limit: float, tag: Tag
) -> int | None:
    """Wait until members have come somewhere.

    Args:
        channels: connections to them, by rank.
        words: ranks by the address of their word.
        turn: what each must be at least.
        limit: seconds.
        tag: what is waited for.

    Returns:
        The rank of who came last; None if nobody was waited for long.

    Raises:
        GangError: one is gone, says that the run ends, or does not come within the limit.
    """
    last = None
    addresses = np.array([*words], np.int64)
    began = time.perf_counter()
    while not reached(addresses.ctypes.data, len(addresses), turn, _PATIENCE):
        look_after(channels, lambda: lacking(words, turn), began, limit, tag)
        last = next(iter(lacking(words, turn)), last)
        nap(began)
    return last


class Talk:
    """Members of one host tell each other numbers through memory.

    What is told lies in two places in turn: whoever tells something for the third time has heard
    the second from all, who had heard the first then.

    Args:
        memory: by rank, what that member writes to, ``Talk.size`` bytes.
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
        """What every member says, by rank; None if one has more to say than there is room for.

        Args:
            own: what this one says.
            wait: waits for words, given their ranks by address and the number that they must reach.

        Raises:
            GangError: somebody does not answer.
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
