"""Feeds: checked, turned into arrays, and split over devices."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.core.errors import EnforceNotMet, see
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.core.lod import LOD_SUFFIX, ROWS_SUFFIX, Lod, rows_name
from dpexec.engine.core.places import Place
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.dask.blocks import Blocks, computed, row_blocks
from dpexec.engine.dask.held import hold
from dpexec.engine.feeds.arrays import arrays_of, check_array
from dpexec.engine.feeds.columns import with_columns
from dpexec.engine.feeds.extents import Extents, find_extents
from dpexec.engine.ir.block import Block

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Feeds", "SplitTensor", "even_rows", "single_feed", "split_feed"]


class SplitTensor(LoDTensor):
    """A batch whose rows lie on the devices of a ParallelDo already.

    Args:
        array: the whole batch.
        places: the devices.
        parts: the rows of each.
    """

    def __init__(self, array: Any, places: Sequence[Place], parts: Sequence[Any]) -> None:
        super().__init__()
        self.array = array
        self.places, self.parts = list(places), list(parts)


@dataclass(frozen=True)
class Feeds:
    """The feeds of all devices.

    Args:
        values: arrays by name, one dict per device; an idle device has only persistable variables.
        samples: number of samples per device; 0 for an idle one.
        persistable: names of fed persistable variables.
        rows: number of rows of each ParallelDo, by the number of its block.
        split: batches that came split for a ParallelDo.
    """

    values: list[dict[str, np.ndarray[Any, Any]]]
    samples: list[int]
    persistable: frozenset[str] = frozenset()
    rows: Mapping[int, int] = field(default_factory=dict)
    split: Mapping[str, SplitTensor] = field(default_factory=dict)

    @functools.cached_property
    def shapes(self) -> Any:
        """Names, shapes and types of the values, as a key."""
        found = []
        for values in self.values:  # no generators: every new size of a batch comes here
            found.append(tuple([(name, a.shape, a.dtype.str) for name, a in values.items()]))
        return tuple(found)

    @functools.cached_property
    def extents(self) -> Extents:
        """The sizes that change from batch to batch."""
        return find_extents(self.values, self.samples)

    @functools.cached_property
    def form(self) -> Any:
        """:attr:`shapes` without the sizes of :attr:`extents`, as a key."""
        axes = self.extents.axes
        found = []
        for shapes in self.shapes:
            own = []
            for name, shape, dtype in shapes:
                open_ones = axes.get(name)
                own.append((name, open_ones, shape[len(open_ones or ()) :], dtype))
            found.append(tuple(own))
        return tuple(found)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """Names of everything that is fed to a device."""
        return frozenset[str]().union(*self.values)

    @functools.cached_property
    def idle(self) -> tuple[int, ...]:
        """Devices without samples."""
        return tuple([device for device, count in enumerate(self.samples) if not count])

    def private(self, shared: bool) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The values, with copies of those that set a variable, as a run may overwrite them.

        Args:
            shared: whether devices share variables: then they get one copy, of the first value.
        """
        fed: list[dict[str, np.ndarray[Any, Any]]] = []
        copies: dict[str, np.ndarray[Any, Any]] = {}
        for values in self.values:
            for name in self.persistable & values.keys():
                if not (shared and name in copies):
                    copies[name] = values[name].copy()
            fed.append({name: copies.get(name, array) for name, array in values.items()})
        return fed


def single_feed(block: Block, feed: Any) -> Feeds:
    """The feed of one device: a dict, or a list that holds one.

    Args:
        block: the global block.
        feed: dict, or list of one dict.

    Returns:
        The feeds.

    Raises:
        TypeError: not a dict.
        AssertionError: a list for several devices.
        ValueError: an unknown name, or a checked variable got another shape or type.
        EnforceNotMet: an unchecked variable got another number of dimensions or type.
    """
    if isinstance(feed, (list, tuple)):
        if len(feed) != 1:
            raise AssertionError(
                f"Not compiled with data parallel, but the feed is a {type(feed).__name__} of "
                f"{len(feed)}, a dict for each device: feed one dict of arrays by their names"
            )
        feed = feed[0]
    values = arrays_of(block, computed(with_columns(block, feed))[0])
    kept = _persistable(block, values)
    samples = _checked_samples(block, _batch(values, kept), alone=True)
    _check(block, [values])
    if kept:
        samples = _samples(block, values)
    split = {name: value for name, value in feed.items() if isinstance(value, SplitTensor)}
    return Feeds([values], [samples or 1], kept, split=split)


def split_feed(
    block: Block, feed: Any, devices: int, partial: bool, contact: Contact | None = None
) -> Feeds:
    """The feeds of all devices.

    A dict is split along the first axis as evenly as possible; with fewer samples than devices
    the last devices stay idle. A Dask array or dataframe with as many blocks of rows as there are
    devices is split at its blocks, and so are all other arrays. A list gives each device its own
    dict; if its variables disagree about the number of samples, all devices get the same weight.

    Args:
        block: the global block.
        feed: dict or list of dicts.
        devices: number of devices.
        partial: whether some devices may get nothing at all (prediction): a list may be shorter
            than the devices, persistable variables may have a row for each that has samples.
        contact: the connection to the cluster on whose workers Dask collections are computed and
            stay; None brings them here.

    Raises:
        TypeError: neither dict nor list of dicts.
        IndexError: the list is longer than the devices.
        ValueError: an unknown name, or a checked variable got another shape or type.
        EnforceNotMet: a list too short for training, an empty or inconsistent batch.
    """
    if isinstance(feed, Mapping):
        kept, held = _held(block, with_columns(block, feed), contact)
        values, blocks = computed(kept)
        blocks = {**blocks, **held}
        rows = row_blocks(blocks, _of_batch(block, feed), devices) if blocks else None
        arrays = arrays_of(block, values)
        names = _persistable(block, arrays)
        shards, samples = _split(block, arrays, names, devices, partial, rows)
    elif isinstance(feed, (list, tuple)):
        found = [_held(block, with_columns(block, item), contact)[0] for item in feed]
        shards = _listed(block, computed(found)[0], devices, partial)
        names = frozenset[str]().union(*(_persistable(block, shard) for shard in shards))
        samples = _samples_of_each(block, [_batch(shard, names) for shard in shards])
    else:
        raise TypeError(f"feed must be a dict or a list of dicts, but received {type(feed)}")
    _check(block, shards, " on each device")
    return Feeds(shards, samples, names)


def _check(block: Block, shards: Sequence[Mapping[str, Any]], where: str = "") -> None:
    """Compare arrays with the declarations of the variables that are fed with them."""
    known = set()
    for values in shards:
        for name, array in values.items():
            if isinstance(array, Lod) or name.endswith(ROWS_SUFFIX):
                continue
            sequences = name + LOD_SUFFIX in values  # of any number of rows
            key = name, sequences, array.shape[sequences:], array.dtype
            if key not in known:
                known.add(key)
                check_array(block.vars[name], array, where, sequences)


def _checked_samples(block: Block, batch: Mapping[str, Any], alone: bool = False) -> int:
    """The number of samples of a batch. Some of its variables may have none.

    Raises:
        EnforceNotMet: nothing that is fed has a sample, and the program trains or has replicas.
    """
    samples = _samples(block, batch)
    fine = samples or (alone and not block.program._trains())
    if not fine and any(np.ndim(a) and not len(a) for a in batch.values()):
        arrays = {name: a for name, a in batch.items() if not isinstance(a, Lod)}
        shown = ", ".join(f"{name} of shape {list(a.shape)}" for name, a in arrays.items())
        wrong = f"the batch is empty, no fed Variable has a sample: {shown}"
        raise see("an-empty-batch", EnforceNotMet(wrong))
    return samples


def _samples_of_each(block: Block, batches: Sequence[Mapping[str, Any]]) -> list[int]:
    """The number of samples of each device, if the user divided the batch."""
    if not any(batches):
        return [1] * len(batches)
    if all(_agree(block, batch) for batch in batches):
        return [_samples(block, batch) for batch in batches]
    return [int(bool(batch)) for batch in batches]  # as in fluid, where all always count alike


def _batch(values: Mapping[str, Any], kept: Collection[str]) -> Mapping[str, Any]:
    """The feed without persistable variables and their offsets."""
    if not kept:
        return values
    return {n: a for n, a in values.items() if n.removesuffix(LOD_SUFFIX) not in kept}


def _held(block: Block, feed: Any, contact: Contact | None) -> tuple[Any, Blocks]:
    """A feed with its Dask collections held on the cluster, and the rows of their blocks."""
    if contact is None or not isinstance(feed, Mapping):
        return feed, {}
    names = _of_batch(block, feed)
    return hold(contact, feed, [name for name in names if rows_name(name) not in block.vars])


def _of_batch(block: Block, feed: Mapping[str, Any]) -> list[str]:
    """Names of the variables that are split over devices."""
    return [name for name in feed if name in block.vars and not block.vars[name].persistable]


def _persistable(block: Block, values: Mapping[str, Any]) -> frozenset[str]:
    return frozenset([name for name in values if block.vars[name].persistable])


def even_rows(rows: int, devices: int) -> list[int]:
    """Rows of each device, as even as possible: the first devices get one more.

    Args:
        rows: number of rows of the batch.
        devices: number of devices.
    """
    share, more = divmod(rows, devices)
    return [share + 1] * more + [share] * (devices - more)


def _length(values: Mapping[str, Any], name: str) -> int:
    """The number of samples of an array: its sequences, or else its rows."""
    lod, array = values.get(name + LOD_SUFFIX), values[name]
    return lod.sequences if lod is not None else len(array) if array.ndim else 0


def _samples(block: Block, values: Mapping[str, Any]) -> int:
    """Samples of the first fed variable that has a batch dimension and some, else of the first."""
    lengths = _lengths(block, values)
    if lengths:
        for name in block.vars:  # their order counts
            if lengths.get(name):
                return lengths[name]
        return 0
    arrays = {name: array for name, array in values.items() if not isinstance(array, Lod)}
    found = (_length(values, name) for name, array in arrays.items() if array.ndim)
    return next((length for length in found if length), 0)


def _lengths(block: Block, values: Mapping[str, Any]) -> dict[str, int]:
    """Numbers of samples of the fed variables with a batch dimension."""
    found = {}
    for name, array in values.items():
        if not isinstance(array, Lod) and array.ndim and block.vars[name].shape[:1] == (-1,):
            found[name] = _length(values, name)
    return found


def _agree(block: Block, values: Mapping[str, Any]) -> bool:
    """Whether variables agree on the number of samples; nodes and edges of a graph do not."""
    return len(set(_lengths(block, values).values())) <= 1


def _split(
    block: Block,
    values: dict[str, np.ndarray[Any, Any]],
    kept: Collection[str],
    devices: int,
    partial: bool,
    rows: Sequence[int] | None = None,
) -> tuple[list[dict[str, np.ndarray[Any, Any]]], list[int]]:
    """The parts of the devices, and their numbers of samples."""
    shards: list[dict[str, np.ndarray[Any, Any]]] = [{} for _ in range(devices)]
    batch = _batch(values, kept)
    samples = _checked_samples(block, batch)
    active, shares = devices, [1] * devices
    if samples:
        active = min(devices, samples)
        shares = even_rows(samples, active) if rows is None else list(rows)
    for name, array in batch.items():
        if isinstance(array, Lod):
            continue
        if not array.ndim:  # nothing to split; most declarations refuse it
            for shard in shards[:active]:
                shard[name] = array
            continue
        length = _length(batch, name)
        if not length and samples:
            for shard in shards[:active]:
                shard.update(_part(batch, name, 0, 0))
            continue
        if length < active if rows is None else length != sum(rows):
            raise EnforceNotMet(
                f"fed Variable {name!r} of shape {list(array.shape)} cannot be split over "
                f"{active} devices: other fed Variables have {samples} samples, and it has {length}"
            )
        first = 0
        counts = even_rows(length, active) if rows is None and length != samples else shares
        for shard, count in zip(shards, counts, strict=False):
            shard.update(_part(batch, name, first, count))
            first += count
    for name in (name for name in values if name in kept):
        each = {devices, active} if partial else {devices}
        for shard, part in zip(shards, _rows(name, values, devices, each), strict=False):
            shard.update(part)
    return shards, shares + [0] * (devices - len(shares))


def _part(values: Mapping[str, Any], name: str, first: int, count: int) -> dict[str, Any]:
    """Some samples of an array, with the offsets of their sequences."""
    lod = values.get(name + LOD_SUFFIX)
    if lod is None:
        return {name: values[name][first : first + count]}
    part, rows = lod.part(first, count)
    return {name: values[name][rows], name + LOD_SUFFIX: part}


def _rows(
    name: str, values: Mapping[str, Any], devices: int, each: set[int]
) -> Sequence[dict[str, Any]]:
    """The parts of a persistable variable: its one row for all devices, or some rows for each.

    Sequences are divided like rows.
    """
    array, rows = values[name], _length(values, name)
    if rows == 1:
        return [_part(values, name, 0, 1)] * devices
    busy = min(rows, devices)
    if busy in each:
        ends = np.cumsum([0, *even_rows(rows, busy)])
        return [_part(values, name, first, end - first) for first, end in itertools.pairwise(ends)]
    raise EnforceNotMet(
        f"fed Variable {name!r} is persistable: it takes 1 row for all devices, or at least "
        f"{min(each)}, which are divided, but received fed shape {list(array.shape)}"
    )


def _listed(
    block: Block, feed: Sequence[Any], devices: int, partial: bool
) -> list[dict[str, np.ndarray[Any, Any]]]:
    for item in feed:
        if not isinstance(item, Mapping):
            raise TypeError(f"Each element of feed list should be a dict, but got {type(item)}")
    if len(feed) > devices:
        problem = (
            f"the feed list has {len(feed)} elements for {devices} devices{_for_loaders(devices)}"
        )
        raise see("a-list-of-feeds-for-another-number-of-replicas", IndexError(problem))
    if not partial and (len(feed) < devices or not all(feed)):
        number = sum(bool(item) for item in feed)
        problem = (
            f"Unimplemented: The feed data number {number} does not match the device number "
            f"{devices}; when training, every device needs a dict{_for_loaders(devices)}"
        )
        raise see("a-list-of-feeds-for-another-number-of-replicas", EnforceNotMet(problem))
    shards = [arrays_of(block, item) for item in feed]
    return shards + [{}] * (devices - len(shards))


def _for_loaders(devices: int) -> str:
    """The hint for a list that a DataLoader made for its own places."""
    return (
        f". A DataLoader gives a dict for each of its places: give it as many as the program has, "
        f"places=fluid.cpu_places({devices})"
    )
