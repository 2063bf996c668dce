"""The queue of a loader: what it has read ahead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpexec.reading.batches import feed

if TYPE_CHECKING:
    from dpexec.reading.loaders import GeneratorLoader

__all__ = ["BatchQueue"]


class BatchQueue:
    """Batches that a loader has read ahead; programs look at its size, or fill it themselves.

    Args:
        loader: whose batches they are.
    """

    def __init__(self, loader: GeneratorLoader) -> None:
        self._loader = loader

    def size(self) -> int:
        """How many batches wait; 0 while nothing is read."""
        reading = self._loader._started
        return 0 if reading is None else reading.waiting()

    def capacity(self) -> int:
        """How many batches may wait."""
        return self._loader._capacity

    def push(self, tensors: Iterable[Any]) -> bool:
        """Add a batch behind those that wait; waits for room.

        A loader that was not started takes what is pushed alone, as its program runs.

        Args:
            tensors: an array or LoDTensor for each variable of the loader.

        Returns:
            False: the queue was closed, the batch is dropped.

        Raises:
            AssertionError: the loader is iterable, and nobody iterates over it.
            EnforceNotMet: there is another number of tensors than of variables.
        """
        return self._loader._reading().push(feed(self._loader.feed_names, list(tensors)))

    def close(self) -> None:
        """Read and take no more batches: when those that wait are used up, the data end."""
        self._loader._reading().complete()

    kill = close
