"""Caches of limited size.

``LIMITS`` lists all caches that have a limit. Results of a function are cached by
``functools.lru_cache(limit_of(...))``, everything else in a :class:`LimitedCache`. Values that
belong to an object are cached by weak references, and end with it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, TypeVar

__all__ = ["LIMITS", "Limit", "LimitedCache", "limit_of"]

_K = TypeVar("_K")
_V = TypeVar("_V")


class Limit(NamedTuple):
    """How much a cache keeps.

    Args:
        entries: how many results.
        key: what they are found by.
    """

    entries: int
    key: str


LIMITS = {
    "arguments of functions": Limit(512, "function, such as the constructor of an optimizer"),
    "bindings": Limit(64, "plan, shapes and types of feeds and variables, flags"),
    "bindings on workers": Limit(64, "binding"),
    "bindings with plain sizes": Limit(16, "numbers of rows, of one family"),
    "checked shapes": Limit(4, "specs of the inputs, of one operator"),
    "codes of regions": Limit(32, "shapes without the numbers of rows, of one region"),
    "codes of tasks": Limit(8, "open rows and specs, of tasks with the same operators"),
    "convolutions": Limit(512, "shapes, windows and types"),
    "cuts of feeds": Limit(
        256, "names, shapes and types of what is fed, with or without the numbers of rows"
    ),
    "dask graphs": Limit(32, "plan"),
    "delayed steps": Limit(1_000, "token of the step"),
    "ended runs": Limit(1_000, "token of the run"),
    "engines of other runs": Limit(8, "how the run differs from the whole program"),
    "engines of programs": Limit(
        32, "program, scope, and how the run differs from the whole program"
    ),
    "families of bindings": Limit(32, "plan, and what is fed without the numbers of rows"),
    "fitted estimators": Limit(4, "pickled estimator"),
    "loops of recurrent kernels": Limit(64, "sizes of states, and what is computed"),
    "oneDNN primitives": Limit(1_024, "shapes, layouts and types; other devices have the same"),
    "models that arrived": Limit(4, "config of the predictor, and state of the model's files"),
    "operators in bindings": Limit(
        50_000, "that of bindings: small programs may have more of them"
    ),
    "operators of groups": Limit(4_096, "attributes of the fused operator"),
    "usual steps": Limit(1_024, "number of the binding"),
    "plans": Limit(32, "fetches, fed names, idle devices"),
    "primitives of a call": Limit(1, "numbers that a run tells, of one call"),
    "rows of devices": Limit(256, "names and shapes of what is fed"),
    "sized regions": Limit(512, "shapes of what is read, of one region"),
    "sizes on a worker": Limit(16, "numbers of rows, of one binding"),
    "steps of sequences": Limit(16, "offsets and direction; gradients use those of their operator"),
    "sums among trainers": Limit(32, "digest of the steps' collectives"),
    "sums of a gang": Limit(32, "buckets, and the rows of sparse values"),
    "trainings on dashboards": Limit(16, "tag of the run"),
    "words of steps of code": Limit(256, "numbers of rows"),
}
"""Every cache with a limit, by what it holds."""


def limit_of(what: str) -> int:
    """How many entries a cache keeps.

    Args:
        what: it holds, a key of ``LIMITS``.
    """
    return LIMITS[what].entries


class LimitedCache(OrderedDict[_K, _V]):
    """A dict that drops its oldest entries beyond a limit, whichever method adds new ones.

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
        """The value of a key, which becomes the newest entry; None if there is none."""
        found = self.get(key)
        if found is not None:
            try:
                self.move_to_end(key)
            except KeyError:  # another thread has dropped it since
                self[key] = found
        return found
