"""Dask collections as feeds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import dask
from dask.base import is_dask_collection

__all__ = ["computed", "row_blocks"]


def computed(feed: Any) -> Any:
    """A feed with the values of its Dask collections, computed together.

    They run on Dask's current scheduler: on threads, or where a ``distributed.Client`` computes.

    Args:
        feed: a dict, or a list of dicts; without Dask collections it is returned as it is.

    Raises:
        TypeError: a Dask dataframe, whose columns may differ in type.
    """
    items = feed if isinstance(feed, (list, tuple)) else [feed]
    dicts = [item for item in items if isinstance(item, Mapping)]
    lazy = [value for item in dicts for value in item.values() if is_dask_collection(value)]
    if not lazy:
        return feed
    for item in dicts:
        for name, value in item.items():
            if hasattr(type(value), "to_dask_array"):
                raise TypeError(
                    f"fed Variable {name!r} is a Dask dataframe: feed columns of one type, as "
                    "frame[columns].to_dask_array(lengths=True)"
                )
    results = iter(dask.compute(*lazy))
    made = [
        {name: next(results) if is_dask_collection(v) else v for name, v in item.items()}
        if isinstance(item, Mapping)
        else item
        for item in items
    ]
    return made if isinstance(feed, (list, tuple)) else made[0]


def row_blocks(feed: Mapping[str, Any], names: Collection[str], devices: int) -> list[int] | None:
    """The rows for each device, if Dask arrays in a feed have a block of rows for each.

    Args:
        feed: values by name.
        names: those that are split over the devices.
        devices: how many.

    Returns:
        Rows per device; None: no array has as many (known, not empty) blocks as there are devices.

    Raises:
        ValueError: two arrays have as many blocks, but of different sizes.
    """
    found: dict[str, list[int]] = {}
    for name in names:
        has_blocks = is_dask_collection(feed[name]) and hasattr(type(feed[name]), "chunks")
        chunks = feed[name].chunks if has_blocks else ()
        if chunks and len(chunks[0]) == devices and all(size > 0 for size in chunks[0]):
            found[name] = list(chunks[0])
    sizes = list(found.values())
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            f"the fed Dask arrays have a block for each of the {devices} devices, but the blocks "
            f"differ in their rows: {found}"
        )
    return sizes[0] if sizes else None
