"""Graphs of many similar tasks, compressed when they travel."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence
from pickle import PickleBuffer
from typing import Any

from distributed.protocol import pickle

__all__ = ["Packed"]

_FAST = 1  # of the levels of zlib: what comes again is found at all of them


class Packed(dict[Hashable, Any]):
    """A dict that is compressed on its way to dask's scheduler, all but the numbers of arrays.

    It can be called with a key, as dask's annotations are.

    Example:
        >>> from pickle import dumps, loads
        >>> tasks = Packed({number: ("a long description", number) for number in range(1000)})
        >>> loads(dumps(tasks)) == tasks
        True
        >>> len(dumps(tasks)) < len(dumps(dict(tasks))) / 2
        True
    """

    def __call__(self, key: Hashable) -> Any:
        """The value of a key."""
        return self[key]

    def __reduce__(self) -> tuple[Any, ...]:
        buffers: list[PickleBuffer] = []
        data = pickle.dumps(dict(self), buffer_callback=buffers.append)
        return _unpacked, (zlib.compress(data, _FAST), buffers)


def _unpacked(data: bytes, buffers: Sequence[Any]) -> Packed:
    return Packed(pickle.loads(zlib.decompress(data), buffers=buffers))
