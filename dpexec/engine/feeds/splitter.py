"""Splits the feeds of a program; feeds like earlier ones are not checked again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import ROWS_SUFFIX
from dpexec.engine.dask.held import HeldRows
from dpexec.engine.feeds.splitting import Feeds, even_rows
from dpexec.engine.ir.block import Block

__all__ = ["Cuts", "Splitter"]


@dataclass(frozen=True)
class Cuts:
    """How arrays of some shapes are divided.

    Args:
        parts: per device, names and rows.
        samples: per device.
        facts: values of properties of :class:`Feeds`, by name.
        key: names, shapes and types of the arrays.
    """

    parts: list[list[tuple[str, slice]]]
    samples: list[int]
    facts: dict[str, Any]
    key: Any = field(compare=False)

    def fit(self, feed: Any) -> bool:
        """Whether a feed has arrays of these shapes, and nothing else."""
        return bool(_plain_arrays(feed) == self.key)

    def of(self, feed: Mapping[str, np.ndarray[Any, Any]]) -> Feeds:
        """The parts of some arrays."""
        values = []
        for parts in self.parts:  # loops, as every step comes through here
            own = {}
            for name, rows in parts:
                own[name] = feed[name][rows]
            values.append(own)
        made = Feeds.__new__(Feeds)  # its constructor takes twice as long as all this
        facts = made.__dict__
        facts.update(_UNCHANGED, values=values, samples=self.samples)
        facts.update(self.facts)
        return made

    def with_rows(self, rows: int) -> Cuts:
        """The same for another number of rows; all arrays have it, and each device gets some."""
        samples, first = even_rows(rows, len(self.samples)), 0
        parts, shapes = [], []
        for own, form, count in zip(self.parts, self.facts["form"], samples, strict=True):
            part, first = slice(first, first + count), first + count
            parts.append([(name, part) for name, _ in own])
            shapes.append(tuple((name, (count, *tail), dtype) for name, _, tail, dtype in form))
        key = tuple((name, (rows, *shape[1:]), dtype) for name, shape, dtype in self.key)
        return Cuts(parts, samples, {**self.facts, "shapes": tuple(shapes)}, key)


_UNCHANGED = {name: value for name, value in vars(Feeds([], [])).items() if not value}
"""The fields of feeds that arrays alone leave empty."""


class Splitter:
    """Splits the feeds of a program.

    Args:
        split: :func:`single_feed` or :func:`split_feed` of the program.
        block: the global block.

    Attributes:
        latest: how the latest feed was divided; None if it was looked at anew.
    """

    def __init__(self, split: Callable[[Any], Feeds], block: Block) -> None:
        self._split = split
        self._block = block
        self._by_shape = not any(name.endswith(ROWS_SUFFIX) for name in block.vars)
        self.latest: Cuts | None = None
        self._known: LimitedCache[Any, Cuts] = LimitedCache(limit_of("cuts of feeds"))
        self._open: LimitedCache[Any, Cuts] = LimitedCache(
            limit_of("cuts of feeds")
        )  # for any number of rows

    def __call__(self, feed: Any) -> Feeds:
        """The feeds of all devices; errors are those of the function."""
        key = _plain_arrays(feed) if self._by_shape else None
        if key is None:
            self.latest = None
            return self._split(feed)
        self.latest = cuts = self._known.get(key) or self._with_other_rows(key)
        if cuts is not None:
            return cuts.of(feed)
        found = self._split(feed)
        if not found.persistable:
            cuts = _cuts_of(feed, found, key)
            self._known[key] = cuts
            if self._is_open(key, cuts):
                self._open[_without_rows(key)] = cuts
        return found

    def _with_other_rows(self, key: Any) -> Cuts | None:
        """The cuts of arrays that differ from earlier ones only in the number of rows."""
        rows = key[0][1][0] if key else 0
        like = self._open.get(_without_rows(key))
        if like is None or rows < len(like.samples) or any(shape[0] != rows for _, shape, _ in key):
            return None
        cuts = like.with_rows(rows)
        self._known[key] = cuts
        return cuts

    def _is_open(self, key: Any, cuts: Cuts) -> bool:
        """Whether all numbers of rows are divided like this: evenly, and none is refused."""
        rows = key[0][1][0] if key else 0
        even = rows >= len(cuts.samples) and cuts == cuts.with_rows(rows)
        declared = [self._block.vars[name] for name, _, _ in key]
        return even and all(v.shape[:1] == (-1,) or not v.need_check_feed for v in declared)


def _plain_arrays(feed: Any) -> Any:
    """Names, shapes and types, if a feed is a dict of arrays, or rows held elsewhere; else None."""
    if type(feed) is not dict:
        return None
    found = []
    for name, array in feed.items():
        if type(array) not in (np.ndarray, HeldRows) or not array.ndim:
            return None
        found.append((name, array.shape, array.dtype))
    return tuple(found)


def _without_rows(key: Any) -> Any:
    return tuple((name, shape[1:], dtype) for name, shape, dtype in key)


def _cuts_of(feed: Mapping[str, Any], found: Feeds, key: Any) -> Cuts:
    ends = dict.fromkeys(feed, 0)
    parts: list[list[tuple[str, slice]]] = []
    for values in found.values:
        parts.append([])
        for name, array in values.items():
            first, ends[name] = ends[name], ends[name] + len(array)
            parts[-1].append((name, slice(first, ends[name])))
    facts = {name: getattr(found, name) for name in ("shapes", "form", "names", "idle")}
    return Cuts(parts, found.samples, facts, key)
