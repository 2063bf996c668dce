"""Dask collections as feeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import dask
import numpy as np
from dask.base import is_dask_collection

__all__ = ["computed", "row_blocks"]

Blocks = dict[str, list[int]]
"""For every Dask array or dataframe in a feed the rows of its blocks, where they are known."""


def computed(feed: Any) -> tuple[Any, Blocks]:
    """A feed with the values of its Dask collections, computed together.

    They run on Dask's current scheduler: on threads, or where a ``distributed.Client`` computes.

    Args:
        feed: a dict, or a list of dicts; without Dask collections it is returned as it is.

    Returns:
        The feed, and the blocks of the last dict.

    Raises:
        TypeError: a Dask dataframe with columns of different types.
    """
    items = feed if isinstance(feed, (list, tuple)) else [feed]
    dicts = [item for item in items if isinstance(item, Mapping)]
    lazy = [part for item in dicts for value in item.values() for part in _parts(value)]
    if not lazy:
        return feed, {}
    results = iter(dask.compute(*lazy))
    blocks: Blocks = {}
    made: list[Any] = []
    for item in items:
        if not isinstance(item, Mapping):
            made.append(item)
            continue
        blocks = {}
        made.append({})
        for name, value in item.items():
            found = [next(results) for _ in _parts(value)]
            made[-1][name] = value if not found else found[0]
            if _is_frame(value):
                made[-1][name] = _matrix(name, found)
                blocks[name] = [len(frame) for frame in found]
            elif found and hasattr(type(value), "chunks") and value.chunks:
                blocks[name] = list(value.chunks[0])
    return (made if isinstance(feed, (list, tuple)) else made[0]), blocks


def _is_frame(value: Any) -> bool:
    """Whether a value is a Dask dataframe or a column of one."""
    return is_dask_collection(value) and hasattr(type(value), "to_dask_array")


def _parts(value: Any) -> list[Any]:
    """What is computed: of a dataframe each partition, so that their sizes are seen."""
    if _is_frame(value):
        return list(value.partitions)
    return [value] if is_dask_collection(value) else []


def _matrix(name: str, frames: Sequence[Any]) -> np.ndarray[Any, Any]:
    columns = {str(dtype) for frame in frames for dtype in getattr(frame, "dtypes", [])}
    if len(columns) > 1:
        raise TypeError(
            f"fed Variable {name!r} is a Dask dataframe whose columns have different types "
            f"({', '.join(sorted(columns))}): feed columns of one type, as frame[columns]"
        )
    return np.concatenate([frame.to_numpy() for frame in frames])


def row_blocks(blocks: Blocks, names: Collection[str], devices: int) -> list[int] | None:
    """The rows for each device, if Dask collections in a feed have a block of rows for each.

    Args:
        blocks: of the feed.
        names: the variables that are split over the devices.
        devices: how many.

    Returns:
        Rows per device; None: none has as many (known, not empty) blocks as there are devices.

    Raises:
        ValueError: two have as many blocks, but of different sizes.
    """
    found = {
        name: rows
        for name, rows in blocks.items()
        if name in names and len(rows) == devices and all(size > 0 for size in rows)
    }
    sizes = list(found.values())
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"the fed Dask collections have a block for each of the {devices} devices, but the "
            f"blocks differ in their rows: {found}"
        )
    return sizes[0] if sizes else None
