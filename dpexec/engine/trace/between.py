"""What a process does besides steps, when: it prepares one, waits for a batch, replaces a worker.

Traces tell it, so that it is not taken for time of the script or of operators.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Literal, get_args

__all__ = ["KINDS", "Kind", "new_shape", "noted", "preparing", "shapes", "spans"]

Kind = Literal["preparing", "reading", "recovering"]
"""Plans are made, values bound, code compiled for batches of a new shape; a batch is awaited; or a
worker was lost, and its replica moves."""

KINDS: tuple[Kind, ...] = get_args(Kind)

spans: dict[Kind, deque[tuple[int, int]]] = {kind: deque(maxlen=4096) for kind in KINDS}
"""Begin and end of the latest ones in this process, in nanoseconds."""

shapes: deque[tuple[int, str, tuple[int, ...]]] = deque(maxlen=4096)
"""When what a step reads had a shape for which the step was prepared: time, name and shape."""


def new_shape(name: str, shape: tuple[int, ...]) -> None:
    """Note that a step is prepared as a value has another shape than before."""
    shapes.append((time.perf_counter_ns(), name, shape))


@contextmanager
def noted(kind: Kind) -> Iterator[None]:
    """Note the time of the block; what blocks inside of it have noted is part of it."""
    began, found = time.perf_counter_ns(), spans[kind]
    try:
        yield
    finally:
        while found and found[-1][0] >= began:
            found.pop()
        found.append((began, time.perf_counter_ns()))


def preparing() -> AbstractContextManager[None]:
    """Note the time in which a step is prepared."""
    return noted("preparing")
