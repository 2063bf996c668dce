"""What a process does between steps, when: it prepares a step, or waits for a batch to be read.

Traces tell it, so that it is not taken for time of the script.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, get_args

__all__ = ["KINDS", "Kind", "noted", "preparing", "spans"]

Kind = Literal["preparing", "reading"]
"""Plans are made, values bound, code compiled for batches of a new shape; or a batch is awaited."""

KINDS: tuple[Kind, ...] = get_args(Kind)

spans: dict[Kind, deque[tuple[int, int]]] = {kind: deque(maxlen=4096) for kind in KINDS}
"""Begin and end of the latest ones in this process, in nanoseconds."""


@contextmanager
def noted(kind: Kind) -> Iterator[None]:
    """Note the time of the block."""
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        spans[kind].append((began, time.perf_counter_ns()))


def preparing() -> AbstractContextManager[None]:
    """Note the time in which a step is prepared."""
    return noted("preparing")
