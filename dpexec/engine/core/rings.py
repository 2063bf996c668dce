"""Rings: groups of processes over which operators such as ``c_allreduce_sum`` work."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["Ring", "ring_at"]


class Ring(Protocol):
    """The processes of a ring, as one of them sees it.

    Attributes:
        rank: number of this process.
        size: number of processes.
    """

    rank: int
    size: int

    def gather(self, array: Any, senders: Sequence[int], text: str) -> list[Any]:
        """The arrays of some members, in the order in which these are named.

        Args:
            array: of this process; all have the same shape and type.
            senders: ranks of the members.
            text: a description for error messages.
        """


class _Alone:
    """The ring of a process that trains alone."""

    rank, size = 0, 1

    def gather(self, array: Any, senders: Sequence[int], text: str) -> list[Any]:
        return [array for _ in senders]


def ring_at(rings: Mapping[int, Ring], number: int) -> Ring | None:
    """The ring with a number; a ring of this process alone if there is one trainer and no ring.

    Args:
        rings: the rings that were set up, by number.
        number: ``ring_id``.

    Returns:
        None if there are several trainers and the ring was not set up.
    """
    if number in rings:
        return rings[number]
    return _Alone() if int(os.environ.get("PADDLE_TRAINERS_NUM") or 1) == 1 else None
