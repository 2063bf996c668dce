"""Random numbers in CUDA graphs: the origin of each stream is written before every launch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpexec.engine.compile.regions.env import Env, Shard
from dpexec.engine.core.random import RandomStream

__all__ = ["DrawingEnv", "Origins"]

StreamOf = Callable[[Shard], RandomStream]


class Origins:
    """Counters on a GPU from which the random operators of a graph draw their numbers.

    Args:
        xp: ``cupy``; its current pool provides the memory.
        most: the largest number of random operators.
    """

    def __init__(self, xp: Any, most: int) -> None:
        self._xp, self._words = xp, xp.empty((most, 2), np.uint64)
        self._drawn: list[tuple[StreamOf, int]] = []

    def add(self, stream: StreamOf, size: int) -> Any:
        """Reserve two words for an operator.

        Args:
            stream: the operator's random stream in a run.
            size: how many numbers it draws.
        """
        self._drawn.append((stream, size))
        return self._words[len(self._drawn) - 1]

    def write(self, shard: Shard) -> None:
        """Enqueue the origins of a run on the current stream, for the next launch.

        Args:
            shard: the device's part of the run.
        """
        if self._drawn:
            words = [stream(shard).origin(size) for stream, size in self._drawn]
            self._words[: len(words)] = self._xp.asarray(np.array(words, np.uint64))


class DrawingEnv(Env):
    """The values of a device while a graph is captured.

    Args:
        shard: the device's part of the run.
        origins: the origins of random numbers.
    """

    __slots__ = ("_origins",)

    def __init__(self, shard: Shard, origins: Origins) -> None:
        super().__init__(shard)
        self._origins = origins

    def draw(self, stream: StreamOf) -> RandomStream:
        """A random stream that continues with new numbers at every launch."""
        return _Drawn(self._origins, stream)


class _Drawn(RandomStream):
    """A random stream whose origin is known only on the GPU.

    Args:
        origins: the origins on the GPU.
        stream: the random stream in a run.
    """

    def __init__(self, origins: Origins, stream: StreamOf) -> None:
        self._origins, self._stream = origins, stream

    def origin_on(self, xp: Any, size: int) -> Any:
        """The words with the origin, which launches read."""
        return self._origins.add(self._stream, size)
