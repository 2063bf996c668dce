"""The memory that machine code works in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.memory import count_memory

__all__ = ["ALIGNMENT", "Memory", "aligned"]

ALIGNMENT = 64
"""Bytes: arrays begin at multiples of it, since vector instructions are faster there."""


class Memory:
    """The memory of an engine's code; batches of different shapes use it in turn."""

    def __init__(self) -> None:
        self._blocks: dict[Any, np.ndarray[Any, Any]] = {}

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return sum(len(block) for block in self._blocks.values())

    @property
    def sizes(self) -> dict[Any, int]:
        """The size of each block in bytes, by its key."""
        return {key: len(block) for key, block in self._blocks.items()}

    def block(self, key: Any, nbytes: int) -> np.ndarray[Any, Any]:
        """The block of a key; one that is too small is replaced by a block half as large again."""
        present = len(self._blocks.get(key, ()))
        if key not in self._blocks or present < nbytes:
            self._blocks[key] = aligned(max(nbytes, present * 3 // 2))
        return self._blocks[key]


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """An array of bytes that begins at a multiple of :data:`ALIGNMENT`."""
    memory = count_memory(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]
