"""The memory that machine code works in."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.core.memory import count_memory

__all__ = ["ALIGNMENT", "Memory", "aligned"]

ALIGNMENT = 64
"""Bytes; where vector instructions like arrays to begin."""


class Memory:
    """What the code of an engine works in: batches of other shapes use the same memory in turn."""

    def __init__(self) -> None:
        self._blocks: dict[Any, np.ndarray[Any, Any]] = {}

    @property
    def nbytes(self) -> int:
        """How much it is."""
        return sum(len(block) for block in self._blocks.values())

    @property
    def sizes(self) -> dict[Any, int]:
        """How many bytes there are for each use."""
        return {key: len(block) for key, block in self._blocks.items()}

    def block(self, key: Any, nbytes: int) -> np.ndarray[Any, Any]:
        """Bytes for one use; a much larger block replaces one that is too small."""
        present = len(self._blocks.get(key, ()))
        if key not in self._blocks or present < nbytes:
            self._blocks[key] = aligned(max(nbytes, present * 3 // 2))
        return self._blocks[key]


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes of memory, well aligned."""
    memory = count_memory(np.empty(nbytes + ALIGNMENT, np.uint8), nbytes)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]
