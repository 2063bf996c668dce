"""Memory of CUDA graphs: the graphs of a piece, one per batch size, share a pool.

A program that is fed batches of many sizes has many graphs, of which one runs at a time, so one can
reuse the memory of another. Only graphs of the same piece share memory: when a piece runs again,
its old results are no longer needed, while results of other pieces of the step still are.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.graph.ssa import OpNode

__all__ = ["Reserve", "reserve_of"]


class Reserve:
    """A memory pool, and the stream on which the graphs that use it are captured.

    CuPy reuses memory only on the stream that freed it, so there is one stream. It is non-blocking:
    else work on the null stream would break a capture.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: Any = None

    @contextlib.contextmanager
    def current(self, xp: Any) -> Iterator[Any]:
        """Allocate arrays from the pool inside the block; yields the stream, which is current.

        Args:
            xp: ``cupy``.
        """
        if self._stream is None:
            self._pool, self._stream = xp.cuda.MemoryPool(), xp.cuda.Stream(non_blocking=True)
            # free what the steps used before the capture: the graph needs as much again
            xp.get_default_memory_pool().free_all_blocks()
        xp.cuda.get_cublas_handle()  # a capture cannot create the thread's handle
        with self._stream, xp.cuda.using_allocator(self._pool.malloc):
            yield self._stream


_reserves: weakref.WeakKeyDictionary[Plan, dict[OpNode, Reserve]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def reserve_of(plan: Plan, first: OpNode) -> Reserve:
    """The memory of a piece's graphs.

    Args:
        plan: the piece's plan.
        first: the piece's first node.
    """
    with _lock:
        return _reserves.setdefault(plan, {}).setdefault(first, Reserve())
