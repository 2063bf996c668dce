"""Collectives among GPUs of this process by NCCL."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.gpu import nccl

__all__ = ["NcclCollectives"]


class NcclCollectives:
    """Lets NCCL run the collectives that it supports: an :class:`Agreement` within one process."""

    def __init__(self) -> None:
        self._made: weakref.WeakKeyDictionary[Binding, Binding] = weakref.WeakKeyDictionary()

    def begin(self) -> None:
        """No other process needs to be asked before a run."""

    def ready(self, binding: Binding, feeds: Feeds) -> Binding:
        """The same binding, with NCCL between the GPUs."""
        if binding not in self._made:
            self._made[binding] = nccl.exchanging(binding)
        return self._made[binding]

    def extent(self, samples: Sequence[int]) -> tuple[int, int]:
        """The whole batch is in this process."""
        return 0, sum(samples)
