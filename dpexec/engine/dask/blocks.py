"""Dask collections as feeds."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from dask.base import is_dask_collection

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = [
    "Blocks",
    "brought",
    "check_columns",
    "computed",
    "computed_with",
    "holds_futures",
    "is_array",
    "is_bag",
    "is_frame",
    "is_future",
    "matrix",
    "parts_of",
    "row_blocks",
    "rows_of_blocks",
]

Blocks = dict[str, Sequence[int]]
"""The rows of the blocks of every Dask collection in a feed, where they are known."""


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
    lazy = [v for item in dicts for v in item.values() if is_dask_collection(v)]
    if not lazy:
        return feed, {}
    parts = [parts_of(value) for value in lazy]
    results = iter(computed_with(lambda lazy: dask.compute(*lazy), parts))
    blocks: Blocks = {}
    made: list[Any] = []
    for item in items:
        if not isinstance(item, Mapping):
            made.append(item)
            continue
        blocks = {}
        made.append({})
        for name, value in item.items():
            made[-1][name] = value
            if is_dask_collection(value):
                check_columns(name, value)
                found = [matrix(part) for part in next(results)]
                made[-1][name] = found[0] if len(found) == 1 else np.concatenate(found)
                sizes = [len(block) for block in found if np.ndim(block)]
                blocks[name] = rows_of_blocks(value, sizes)
    return (made if isinstance(feed, (list, tuple)) else made[0]), blocks


def parts_of(value: Any) -> list[Any]:
    """The blocks of rows of a Dask collection, each of which can be computed by itself.

    Args:
        value: an array, a dataframe, a bag, or anything else, which is one block.
    """
    if is_array(value) and value.ndim:
        whole_rows = value.rechunk(dict.fromkeys(range(1, value.ndim), -1))
        return list(whole_rows.to_delayed(optimize_graph=False).ravel())
    if is_frame(value):
        # Else dask would take a partition of `random_split` or `sample` with the seed of the first.
        return list(value.optimize().partitions)
    if is_bag(value):
        return list(value.to_delayed(optimize_graph=False))
    return [value]


def is_array(value: Any) -> bool:
    """Whether a value is a Dask array."""
    return hasattr(type(value), "rechunk")


def is_bag(value: Any) -> bool:
    """Whether a value is a Dask bag."""
    return hasattr(type(value), "foldby")


def is_frame(value: Any) -> bool:
    """Whether a value is a Dask dataframe or a column of one."""
    return hasattr(type(value), "to_dask_array")


def is_future(value: Any) -> bool:
    """Whether a value is a future of a Dask client."""
    distributed = sys.modules.get("distributed")  # who has one has imported it
    return distributed is not None and isinstance(value, distributed.Future)


def holds_futures(value: Any) -> bool:
    """Whether data of a Dask collection lies on workers, as that of a persisted one.

    Dask's optimizations forget the futures of arrays and bags: only the names of tasks are left.
    """
    distributed = sys.modules.get("distributed")  # who has a future has imported it
    return distributed is not None and bool(distributed.client.futures_of(value))


def computed_with(
    compute: Callable[[list[Any]], Iterable[Any]], parts: Sequence[Sequence[Any]]
) -> list[list[Any]]:
    """Compute the blocks of several collections together, so that what they share is done once.

    Dask optimizes dataframes in another way than the rest, and both together not at all.

    Args:
        compute: computes a list of Dask collections.
        parts: the blocks of each collection.

    Returns:
        The computed blocks of each collection.
    """
    found: dict[int, Any] = {}
    blocks = [block for collection in parts for block in collection]
    for frames in (True, False):
        chosen = [index for index, block in enumerate(blocks) if is_frame(block) == frames]
        if chosen:
            found.update(zip(chosen, compute([blocks[i] for i in chosen]), strict=True))
    numbers = itertools.count()
    return [[found[next(numbers)] for _ in collection] for collection in parts]


def brought(
    contact: Contact, worker: str, what: str, function: Callable[..., Any], *args: Any
) -> Any:
    """Call a function on a worker with data that lies there; returns its result to the client.

    The data itself is not asked for: after an error it would be cancelled, and be lost.

    Args:
        contact: the connection to the cluster.
        worker: address of the worker.
        what: purpose of the call, for errors.
        function: the function.
        args: its arguments, some of which are futures.

    Raises:
        ClusterError: the worker or the scheduler does not answer.
    """
    future = contact.client.submit(
        function, *args, workers=[worker], allow_other_workers=False, pure=False
    )
    (value,) = contact.gather([future], {worker: ()}, what)
    return value


def matrix(part: Any) -> Any:
    """A computed block as an array: a row for each row of a dataframe or element of a bag."""
    if hasattr(part, "to_numpy"):
        part = part.to_numpy()
    return np.ascontiguousarray(part) if isinstance(part, (list, np.ndarray)) else part


def rows_of_blocks(value: Any, sizes: Sequence[int]) -> Sequence[int]:
    """How many rows each block of a Dask collection has.

    Args:
        value: the collection; an array's own sizes count, which may be unknown.
        sizes: rows of the blocks that were computed.
    """
    chunks = value.chunks if is_array(value) else ()
    return list(chunks[0]) if chunks else sizes


def check_columns(name: str, value: Any) -> None:
    """Make sure that a dataframe is a matrix.

    Args:
        name: of the variable that is fed with it.
        value: a Dask collection.

    Raises:
        TypeError: its columns have different types.
    """
    if not is_frame(value) or value.ndim < 2:  # a column has one type
        return
    columns = {str(dtype) for dtype in value.dtypes}
    if len(columns) > 1:
        raise TypeError(
            f"fed Variable {name!r} is a Dask dataframe whose columns have different types "
            f"({', '.join(sorted(columns))}): feed columns of one type, as frame[columns]"
        )


def row_blocks(blocks: Blocks, names: Collection[str], devices: int) -> list[int] | None:
    """The rows for each device, if Dask collections in a feed have a block of rows for each.

    Args:
        blocks: the blocks of the feed.
        names: the variables that are split over the devices.
        devices: number of devices.

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
    return list(sizes[0]) if sizes else None
