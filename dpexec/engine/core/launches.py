"""How many threads a launch on a GPU has."""

from __future__ import annotations

__all__ = ["grid"]

_THREADS, _MOST_BLOCKS = 256, 4096


def grid(n: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads for a loop over ``n`` elements."""
    return (min(-(-n // _THREADS), _MOST_BLOCKS),), (_THREADS,)
