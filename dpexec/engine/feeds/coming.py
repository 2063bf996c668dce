"""Batches that loaders have read ahead, for the runs after the current one."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.feeds.splitting import Feeds

__all__ = ["Coming", "Source", "hand_out"]

Batch = Mapping[str, LoDTensor]


class Source(Protocol):
    """A source of batches."""

    @property
    def closed(self) -> bool:
        """Whether it has no more batches."""

    def peek(self, count: int) -> Sequence[Batch]:
        """The next batches, as far as they were read already; they are not removed."""


class Origin:
    """The loader that a tensor came from; copies of the tensor have none.

    Args:
        source: the source of the batch; held weakly.
        device: number of the batch among those that are fed together.
        devices: number of batches that are fed together.
        name: name of the tensor in the batch.
    """

    __slots__ = ("_source", "device", "devices", "name")

    def __init__(self, source: Source, device: int, devices: int, name: str) -> None:
        self._source = weakref.ref(source)
        self.device, self.devices, self.name = device, devices, name

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    @property
    def source(self) -> Source | None:
        """The source of the batch; None if it is gone."""
        return self._source()

    def later(self, steps: int) -> LoDTensor | None:
        """The tensor in its place some steps later; None if it was not read yet."""
        source, number = self.source, (steps - 1) * self.devices + self.device
        found = () if source is None else source.peek(steps * self.devices)
        return found[number].get(self.name) if len(found) == steps * self.devices else None


def hand_out(batch: Batch, source: Source, device: int = 0, devices: int = 1) -> None:
    """Note where a batch comes from, so that a run with it finds the next one.

    Args:
        batch: the batch.
        source: the source of the next ones.
        device: number of the batch among those that are fed together.
        devices: number of batches that are fed together.
    """
    for name, tensor in batch.items():
        tensor.origin = Origin(source, device, devices, name)


class _Known(NamedTuple):
    """A batch read ahead, and the feeds of the devices made of it."""

    parts: Sequence[tuple[str, Any, Any]]
    feeds: Feeds


Made: TypeAlias = weakref.WeakKeyDictionary[Source, list[_Known]]


class Coming:
    """Makes feeds of batches before they are fed, and recognises them when they are.

    Batches stay in their source until a run is fed them: they are only peeked at.

    Args:
        feeds_of: turns a user's feed into the feeds of the devices.
        steps: number of batches that the next run may take.
    """

    def __init__(self, feeds_of: Callable[[Any], Feeds], steps: int) -> None:
        self._feeds_of, self._steps = feeds_of, steps
        self._latest: tuple[Any, Any] = (lambda: None), None
        self._known: Made = weakref.WeakKeyDictionary()

    def feeds_of(self, feed: Any) -> Feeds:
        """The feeds of the devices, see :meth:`Feeding.feeds_of`; perhaps made ahead."""
        feeds = (self._find(feed) if self._known else None) or self._feeds_of(feed)
        self._latest = weakref.ref(feeds), _origins(feed)
        return feeds

    def _find(self, feed: Any) -> Feeds | None:
        """The feeds made of the same tensors, if these have not changed since."""
        parts = _parts(feed)
        if parts is not None:
            for each in itertools.chain(*self._known.values()):
                if len(each.parts) == len(parts) and all(map(_same, each.parts, parts)):
                    return each.feeds
        return None

    @property
    def may_follow(self) -> bool:
        """Whether the source of the latest batch may have more."""
        return self._latest[1] is not None

    def after(self, feeds: Feeds) -> list[Feeds]:
        """The feeds of the devices in the next run, if it continues like the latest one.

        Args:
            feeds: the last feeds of the latest run.

        Returns:
            The feeds, as far as their batches were read already.
        """
        latest, origins = self._latest
        if origins is None or latest() is not feeds:
            return []
        made: list[_Known] = []
        while len(made) < self._steps and (known := self._made(origins, len(made) + 1)):
            made.append(known)
        source = next(origin.source for own in _dicts(origins) for origin in own.values())
        left = {s: known for s, known in self._known.items() if s is not source and not s.closed}
        if source is not None and made:
            left[source] = made
        self._known = weakref.WeakKeyDictionary(left)
        return [known.feeds for known in made]

    def _made(self, origins: Any, steps: int) -> _Known | None:
        """The feeds of the devices some steps later."""
        found = [{n: origin.later(steps) for n, origin in own.items()} for own in _dicts(origins)]
        if any(tensor is None for own in found for tensor in own.values()):
            return None
        feed = found[0] if isinstance(origins, Mapping) else found
        parts = _parts(feed)
        if parts is None:
            return None
        feeds = self._find(feed)
        try:
            return _Known(parts, self._feeds_of(feed) if feeds is None else feeds)
        except (EnforceNotMet, TypeError, ValueError, IndexError):
            return None  # the run that is fed it says so


def _dicts(feed: Any) -> Any:
    """The dicts of a feed: one, or one per device."""
    return [feed] if isinstance(feed, Mapping) else feed if isinstance(feed, (list, tuple)) else ()


def _origins(feed: Any) -> Any:
    """Where all tensors of a feed came from, in its form; None if some came from elsewhere."""
    if type(feed) is dict:  # as in most steps
        for tensor in feed.values():
            if type(tensor) is not LoDTensor or tensor.origin is None:
                return None
    found = []
    for values in _dicts(feed):
        if not isinstance(values, Mapping):
            return None
        own = {n: v.origin if type(v) is LoDTensor else None for n, v in values.items()}
        if None in own.values():
            return None
        found.append(own)
    if not any(found):
        return None
    return found[0] if isinstance(feed, Mapping) else found


def _parts(feed: Any) -> list[tuple[str, Any, Any]] | None:
    """Names, arrays and offsets of a feed; None if somebody may write to them unseen."""
    found: list[tuple[str, Any, Any]] = [("", isinstance(feed, Mapping), None)]
    for values in _dicts(feed):
        for name, tensor in values.items() if isinstance(values, Mapping) else (("", None),):
            if type(tensor) is not LoDTensor or tensor.lent:
                return None
            found.append((name, tensor.array, tensor._lod))
        found.append(("", None, None))
    return found


def _same(one: tuple[str, Any, Any], other: tuple[str, Any, Any]) -> bool:
    return one[0] == other[0] and one[1] is other[1] and one[2] is other[2]
