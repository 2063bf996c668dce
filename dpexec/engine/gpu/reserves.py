"""Where CUDA graphs have their memory: a piece of a plan has one place for batches of all sizes.

A program that is fed batches of many sizes has many graphs, of which one runs at a time: what one
does not keep behind its end, another one may use. Only graphs of the same piece share memory, for
nobody reads the results of a piece when it runs again; what other pieces of the same step have
made is still needed.
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
    """A pool of memory, and the stream on which graphs that work in it are captured.

    CuPy gives memory again on the stream alone that it was given on before, so it is one stream. It
    does not wait for the null stream, since work of anybody there would break a capture.
    """

    def __init__(self) -> None:
        self._pool: Any = None
        self._stream: Any = None

    @contextlib.contextmanager
    def current(self, xp: Any) -> Iterator[Any]:
        """Inside the block arrays are made here; gives the stream, which is current.

        Args:
            xp: ``cupy``.
        """
        if self._stream is None:
            self._pool, self._stream = xp.cuda.MemoryPool(), xp.cuda.Stream(non_blocking=True)
            # graphs take as much again as the steps did that ran without: that goes back
            xp.get_default_memory_pool().free_all_blocks()
        xp.cuda.get_cublas_handle()  # a thread that has none cannot make one while it captures
        with self._stream, xp.cuda.using_allocator(self._pool.malloc):
            yield self._stream


_reserves: weakref.WeakKeyDictionary[Plan, dict[OpNode, Reserve]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def reserve_of(plan: Plan, first: OpNode) -> Reserve:
    """What the graphs of a piece work in.

    Args:
        plan: that it is of.
        first: its first node.
    """
    with _lock:
        return _reserves.setdefault(plan, {}).setdefault(first, Reserve())
