"""When steps were prepared: plans made, values bound, code compiled for batches of a new shape.

This happens before a step begins. Traces tell it, so that it is not taken for time of the script.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["preparing", "spans"]

spans: deque[tuple[int, int]] = deque(maxlen=4096)
"""Begin and end of the latest ones in this process, in nanoseconds."""


@contextmanager
def preparing() -> Iterator[None]:
    """Note the time of the block."""
    began = time.perf_counter_ns()
    try:
        yield
    finally:
        spans.append((began, time.perf_counter_ns()))
