"""Batches that loaders have read already: what will be fed to the runs after this one."""

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
    """Batches one after another."""

    @property
    def closed(self) -> bool:
        """Whether it gives no more."""

    def peek(self, count: int) -> Sequence[Batch]:
        """The next batches, as many of some as are there already; they stay."""


class Origin:
    """Where a tensor of a batch came from; copies of the tensor came from nowhere.

    Args:
        source: gave the batch. It is not kept.
        device: which of the batches it is of that are fed together.
        devices: how many these are.
        name: of the tensor in the batch.
    """

    __slots__ = ("_source", "device", "devices", "name")

    def __init__(self, source: Source, device: int, devices: int, name: str) -> None:
        self._source = weakref.ref(source)
        self.device, self.devices, self.name = device, devices, name

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    @property
    def source(self) -> Source | None:
        """What gave the batch; None if it is gone."""
        return self._source()

    def later(self, steps: int) -> LoDTensor | None:
        """The tensor that takes its place so many steps later; None if it is not there yet."""
        source, number = self.source, (steps - 1) * self.devices + self.device
        found = () if source is None else source.peek(steps * self.devices)
        return found[number].get(self.name) if len(found) == steps * self.devices else None


def hand_out(batch: Batch, source: Source, device: int = 0, devices: int = 1) -> None:
    """Note where a batch comes from, so that a run that is fed it finds the next one.

    Args:
        batch: what is handed out.
        source: has the next ones.
        device: which of the batches it is that are fed together.
        devices: how many these are.
    """
    for name, tensor in batch.items():
        tensor.origin = Origin(source, device, devices, name)


class _Known(NamedTuple):
    """A batch that will come, and what devices are fed of it."""

    parts: Sequence[tuple[str, Any, Any]]
    feeds: Feeds


Made: TypeAlias = weakref.WeakKeyDictionary[Source, list[_Known]]


class Coming:
    """Makes feeds of batches before they are fed, and knows them again.

    Batches stay with who reads them until a run is fed them: they are looked at, not taken.

    Args:
        feeds_of: makes what devices are fed of what the user feeds.
        steps: how many batches the next run may take.
    """

    def __init__(self, feeds_of: Callable[[Any], Feeds], steps: int) -> None:
        self._feeds_of, self._steps = feeds_of, steps
        self._latest: tuple[Any, Any] = (lambda: None), None
        self._known: Made = weakref.WeakKeyDictionary()

    def feeds_of(self, feed: Any) -> Feeds:
        """What devices are fed, see :meth:`Engine.feeds_of`; it may have been made before."""
        feeds = (self._find(feed) if self._known else None) or self._feeds_of(feed)
        self._latest = weakref.ref(feeds), _origins(feed)
        return feeds

    def _find(self, feed: Any) -> Feeds | None:
        """What was made of the same tensors, if nobody has changed them since."""
        parts = _parts(feed)
        if parts is not None:
            for each in itertools.chain(*self._known.values()):
                if len(each.parts) == len(parts) and all(map(_same, each.parts, parts)):
                    return each.feeds
        return None

    @property
    def may_follow(self) -> bool:
        """Whether the latest batch came from somewhere that may have more."""
        return self._latest[1] is not None

    def after(self, feeds: Feeds) -> list[Feeds]:
        """What devices will be fed in the next run if it is fed like the latest one.

        Args:
            feeds: the last ones of that.

        Returns:
            As far as it was read already.
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
        """What devices are fed so many steps later."""
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
