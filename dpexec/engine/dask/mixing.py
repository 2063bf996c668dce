"""Rows of partitions in a random order that depends on seed, epoch and partitions alone.

Partitions are drawn in groups. Each partition is cut into as many random parts as its group has
partitions. A new partition has a part of every old one of its group, with the rows in random order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["cut_rows", "groups_of", "join_rows"]

Arrays = Mapping[str, np.ndarray[Any, Any]]

_GROUPS, _CUT, _JOINED = range(3)
"""Purposes for which numbers are drawn."""


def groups_of(count: int, size: int, seed: int, epoch: int) -> list[list[int]]:
    """Groups of partitions that are mixed with each other.

    Args:
        count: of partitions.
        size: of a group, at most.
        seed: chosen by the user.
        epoch: its number.
    """
    order = _generator(seed, epoch, _GROUPS, 0).permutation(count).tolist()
    return [order[first : first + size] for first in range(0, count, size)]


def cut_rows(values: Arrays, parts: int, seed: int, epoch: int, number: int) -> list[Arrays]:
    """Cut a partition into random parts.

    Args:
        values: its arrays, by name.
        parts: how many.
        seed: chosen by the user.
        epoch: its number.
        number: of the partition.
    """
    rows = len(next(iter(values.values())))
    target = _generator(seed, epoch, _CUT, number).randint(parts, size=rows)
    chosen = [np.flatnonzero(target == part) for part in range(parts)]
    return [{name: array[rows] for name, array in values.items()} for rows in chosen]


def join_rows(parts: Sequence[Arrays], seed: int, epoch: int, number: int) -> Arrays:
    """A new partition of parts of others.

    Args:
        parts: one of each.
        seed: chosen by the user.
        epoch: its number.
        number: of the new partition.
    """
    some = [part for part in parts if len(next(iter(part.values())))] or parts[:1]
    joined = {name: np.concatenate([part[name] for part in some]) for name in some[0]}
    rows = len(next(iter(joined.values())))
    order = _generator(seed, epoch, _JOINED, number).permutation(rows)
    return {name: array[order] for name, array in joined.items()}


def _generator(seed: int, epoch: int, purpose: int, number: int) -> np.random.RandomState:
    """A generator whose numbers NumPy never changes."""
    words = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, epoch, purpose, number)
    return np.random.RandomState(words)
