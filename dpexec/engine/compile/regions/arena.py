"""An arena: one block of memory for the values of a device's tasks, which may share places.

Tasks that run one after another share an arena. The values that only one task uses have a block in
it while that task runs. A value that other tasks read has a place from the task that computes it to
the last task that reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpexec.engine.compile.regions.memory import ALIGNMENT
from dpexec.engine.core.light_dataclasses import dataclass

__all__ = ["Arena", "arena_of", "places_for"]

Life = tuple[int, int]


@dataclass(frozen=True)
class Arena:
    """Where the values of some tasks lie.

    Args:
        nbytes: size of the arena in bytes.
        inner: per task, where the block begins that only its code uses.
        lasting: per task, where its lasting buffers begin.
    """

    nbytes: int
    inner: Sequence[int]
    lasting: Sequence[Sequence[int]]


def arena_of(
    sizes: Sequence[tuple[int, Sequence[int]]], lives: Sequence[Mapping[int, int]]
) -> Arena:
    """Place the values of a chain of tasks.

    Args:
        sizes: per task, in the order in which they run: the bytes that only this task uses, and the
            bytes of each of its lasting buffers.
        lives: per task, by the number of a lasting buffer, the position of the last task that reads
            it. Buffers that are left out are needed until the end.
    """
    items: list[tuple[int, Life]] = []
    for position, ((own, kept), last) in enumerate(zip(sizes, lives, strict=True)):
        items.append((own, (position, position)))
        for number, size in enumerate(kept):
            items.append((size, (position, last.get(number, len(sizes) - 1))))
    places, nbytes = places_for(items)
    inner, lasting, at = [], [], 0
    for _, kept in sizes:
        end = at + 1 + len(kept)
        inner.append(places[at])
        lasting.append(places[at + 1 : end])
        at = end
    return Arena(nbytes, inner, lasting)


def places_for(items: Sequence[tuple[int, Life]]) -> tuple[list[int], int]:
    """Places for items that have a size and a life (first and last moment, both included).

    The largest item comes first. Each gets the lowest place that is free for its whole life.

    Returns:
        Where each item begins, and how many bytes all of them need.
    """
    order = sorted(range(len(items)), key=lambda index: (-items[index][0], items[index][1][0]))
    lives = np.array([items[index][1] for index in order], np.int64).reshape(-1, 2)
    bounds = np.zeros((len(items), 2), np.int64)
    places, needed = [0] * len(items), 0
    for number, index in enumerate(order):
        nbytes, (first, last) = items[index]
        before = lives[:number]
        rivals = (before[:, 0] <= last) & (before[:, 1] >= first)
        place = places[index] = _lowest_gap(bounds[:number][rivals], nbytes)
        bounds[number] = place, -(-(place + nbytes) // ALIGNMENT) * ALIGNMENT
        needed = max(needed, place + nbytes)
    return places, needed


def _lowest_gap(taken: np.ndarray[tuple[int, ...], np.dtype[np.int64]], nbytes: int) -> int:
    """The lowest place for some bytes; ``taken`` has a row (start, end) for each taken place."""
    taken = taken[np.argsort(taken[:, 0])]
    free_from = np.maximum.accumulate(np.concatenate([[0], taken[:, 1]]))
    fits = np.flatnonzero(free_from[:-1] + nbytes <= taken[:, 0])
    return int(free_from[fits[0] if len(fits) else -1])
