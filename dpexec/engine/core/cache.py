"""Results that are kept for the next time, but not all of them for ever."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

__all__ = ["LimitedCache"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class LimitedCache(OrderedDict[_K, _V]):
    """A dict that forgets what was added first when it has too much, however it was added.

    Args:
        limit: how many entries it keeps.

    Example:
        >>> squares = LimitedCache(2)
        >>> for number in range(4):
        ...     squares[number] = number**2
        >>> dict(squares)
        {2: 4, 3: 9}
        >>> squares.setdefault(4, 16)
        16
        >>> dict(squares)
        {3: 9, 4: 16}
    """

    # An OrderedDict, since a subclass of dict does not see what setdefault() and update() add.

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._limit:
            self.popitem(last=False)

    def used(self, key: _K) -> _V | None:
        """What is kept for a key, as if it was added now; None if there is nothing."""
        found = self.pop(key, None)
        if found is not None:
            self[key] = found
        return found
