"""How rows that lie on workers come to the replicas that are fed with them.

Dask's workers send them to each other; rows on the replica's own worker do not move.
"""

from __future__ import annotations

import itertools
import logging
import operator
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from distributed import CancelledError

from dpexec.engine.core.copies import values_on
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.dask.annotations import of_ours
from dpexec.engine.dask.blocks import brought
from dpexec.engine.dask.held import Block, HeldBlocks, HeldRows

if TYPE_CHECKING:
    from dpexec.engine.dask.reachability import Homes
    from dpexec.engine.dask.waiting import Contact

__all__ = ["Delivery", "Fed", "StepRows", "arrive", "fed_to", "rows_of"]

_LOOK = 0.5  # seconds between looks at who is still there
_WHAT = "to bring fed rows"

_logger = logging.getLogger(__name__)


class StepRows(NamedTuple):
    """The rows of blocks that a replica is fed in some steps.

    Args:
        names: the variables that they feed, and the names of the blocks' arrays, if there are any.
        counts: number of cuts in each step.
        cuts: number of the block, first row there, and end; one step after another.
    """

    names: Mapping[str, str | None]
    counts: Sequence[int]
    cuts: Sequence[tuple[int, int, int]]

    def batches(self, blocks: Sequence[Any]) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        """The feed of each step: views of blocks; rows that lie in several blocks are copied.

        Args:
            blocks: the blocks on the worker.
        """
        used = {number for number, _, _ in self.cuts}
        arrays = {
            name: {n: blocks[n] if key is None else blocks[n][key] for n in used}
            for name, key in self.names.items()
        }
        cuts = iter(self.cuts)
        for count in self.counts:
            if count == 1:
                number, first, end = next(cuts)
                yield {name: found[number][first:end] for name, found in arrays.items()}
            else:
                mine = list(itertools.islice(cuts, count))
                yield {
                    name: np.concatenate([found[n][i:j] for n, i, j in mine])
                    for name, found in arrays.items()
                }


class Delivery:
    """Ranges of held rows on their way to a worker.

    Args:
        held: the rows.
        ranges: first rows and ends.

    Attributes:
        ranges: the same, in order.
        cuts: number of the block, first row there, and end; in the order of the ranges.
        begins: where the cuts of each range begin, and finally where the last ones end.
        blocks: futures of the blocks that come to the worker.
        holders: the workers that hold them.
    """

    def __init__(self, held: HeldBlocks, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = sorted(ranges)
        rows, begins = np.array(self.ranges), held.begins
        low = np.searchsorted(begins, rows[:, 0], "right") - 1
        low = np.minimum(low, len(held.pieces) - 1)
        counts = np.maximum(np.searchsorted(begins, rows[:, 1]) - low, 1)  # of no rows, too
        self.begins = np.cumsum([0, *counts])
        owner = np.repeat(np.arange(len(rows)), counts)
        pieces = low[owner] + np.arange(len(owner)) - self.begins[owner]
        first = np.maximum(rows[owner, 0], begins[pieces])
        end = np.minimum(rows[owner, 1], begins[pieces + 1])
        used, numbers = np.unique(pieces, return_inverse=True)
        self.pieces = [held.pieces[number] for number in used]
        into = np.array([piece.first for piece in held.pieces]) - begins[:-1]
        self.cuts = np.stack([numbers, first + into[pieces], end + into[pieces]], 1)
        self.blocks: list[Any] = []
        self.holders: frozenset[str] = frozenset()

    def deliver(self, contact: Contact, worker: str, homes: Mapping[Any, Any], stay: bool) -> None:
        """Start the delivery.

        Args:
            contact: how the cluster is talked to.
            worker: to whom.
            homes: who has which block, by its key.
            stay: whether they come now.
        """
        for number, piece in enumerate(self.pieces):
            future = piece.block.future
            holders = homes.get(future.key, ())
            mine = self.cuts[:, 0] == number
            cuts = self.cuts[mine, 1:]
            if worker in holders or _is_all(cuts, piece.rows):
                cuts = cuts[:0]
            else:
                sizes = cuts[:, 1] - cuts[:, 0]
                ends = np.cumsum(sizes)
                self.cuts[mine, 1], self.cuts[mine, 2] = ends - sizes, ends
            self.blocks.append(_delivered(contact, future, cuts, holders, worker, stay))
            self.holders |= frozenset(holders)


def _is_all(cuts: np.ndarray[Any, Any], rows: int) -> bool:
    """Whether some rows are all rows of a block."""
    return [*cuts[:, 0].tolist(), rows] == [0, *cuts[:, 1].tolist()]


Ways = dict[tuple[int, int], tuple[Delivery, int]]
"""For each range of rows its delivery, and its number there."""


class Fed(NamedTuple):
    """The feed of a replica in a step, on its way to the replica's worker.

    Args:
        values: arrays that travel with the task, by name.
        held: for all others the delivery, the number of the range, and the array's name.
    """

    values: Mapping[str, Any]
    held: Mapping[str, tuple[Delivery, int, str | None]]

    @property
    def holders(self) -> frozenset[str]:
        """The workers that have it."""
        return frozenset[str]().union(*(each.holders for each, _, _ in self.held.values()))


def fed_to(
    contact: Contact,
    feeds: Sequence[tuple[str, Mapping[str, Any]]],
    stay: bool = False,
    until: Hashable = None,
) -> list[Fed]:
    """Plan how the feeds of some steps travel to the replicas.

    Whole blocks travel, and rows that are cut out of other blocks where these lie: for each worker,
    in one piece, all rows of a block that it is fed in these steps.

    Args:
        contact: how the cluster is talked to.
        feeds: workers of replicas, and what they are fed: arrays and :class:`HeldRows`.
        stay: whether rows go to the workers now, and not when a task needs them.
        until: rows that have come to a worker are not sent again as long as this is equal; None:
            always.

    Raises:
        WorkerLostError: the client has lost its connection to the scheduler meanwhile, and dask has
            given up what it was computing.
        SchedulerLostError: the scheduler does not say where they lie.
        Exception: what computing rows again raised, after an earlier loss of this kind.
    """
    wanted: dict[tuple[HeldBlocks, str], dict[tuple[int, int], None]] = {}
    for worker, values in feeds:
        for value in values.values():
            if type(value) is HeldRows:
                wanted.setdefault((value.blocks, worker), {})[value.first, value.end] = None
    found: dict[tuple[HeldBlocks, str], Ways] = {}
    new: list[tuple[Delivery, str, Ways]] = []
    for (held, worker), ranges in wanted.items():
        ways = found[held, worker] = held.on_way.get((until, worker), {})
        if lacking := ranges.keys() - ways.keys():
            new.append((Delivery(held, lacking), worker, ways))
            if until is not None and not ways:
                held.on_way = {key: way for key, way in held.on_way.items() if key[0] == until}
                held.on_way[until, worker] = ways
    needed = {piece.block: None for each, _, _ in new for piece in each.pieces}
    try:
        homes = _restored(contact, needed)
        for each, worker, ways in new:
            each.deliver(contact, worker, homes, stay)
            ways.update((rows, (each, number)) for number, rows in enumerate(each.ranges))
    except CancelledError as error:
        raise WorkerLostError(f"dask gave up rows that are fed ({error})", {}) from error
    return [_fed(values, found, worker) for worker, values in feeds]


def _restored(contact: Contact, blocks: Collection[Block]) -> dict[Any, list[str]]:
    """The workers that hold some blocks, by key, but for silent ones.

    Blocks that are lost, or that only silent workers hold, are computed again.
    """
    if not blocks:
        return {}
    silent = contact.silent()

    def holders() -> dict[Any, list[str]]:
        for block in blocks:
            block.restore()
        found = contact.holders([block.future.key for block in blocks])
        return {key: [w for w in some if w not in silent] for key, some in found.items()}

    found = holders()
    if unheard := [block for block in blocks if silent and not found.get(block.future.key)]:
        for block in unheard:  # dask waits for silent workers for minutes
            block.renew(block.future)
        found = holders()
    return found


def _fed(
    values: Mapping[str, Any], found: Mapping[tuple[HeldBlocks, str], Ways], worker: str
) -> Fed:
    held, others = {}, {}
    for name, value in values.items():
        if type(value) is HeldRows:
            way = found[value.blocks, worker][value.first, value.end]
            held[name] = *way, value.name
        else:
            others[name] = value
    return Fed(values_on(CPUPlace(), others) if others else others, held)  # not from GPUs


def rows_of(fed: Sequence[Fed], blocks: dict[Any, Any]) -> list[StepRows]:
    """The rows of blocks that a replica is fed in some steps.

    Args:
        fed: what it is fed, step by step; the same names are held in all of them.
        blocks: gets their blocks by key; these are numbered in this order.
    """
    ways: list[list[tuple[Delivery, int]]] = []
    names: list[dict[str, str | None]] = []
    for name, (_, _, key) in fed[0].held.items():
        way = [each.held[name][:2] for each in fed]
        if way not in ways:
            ways.append(way)
            names.append({})
        names[ways.index(way)][name] = key
    return [StepRows(own, *_cuts(way, blocks)) for own, way in zip(names, ways, strict=True)]


def _cuts(
    way: Sequence[tuple[Delivery, int]], blocks: dict[Any, Any]
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The number of cuts of each step, and the cuts."""
    counts: list[int] = []
    cuts: list[tuple[int, int, int]] = []
    for delivery, steps in itertools.groupby(way, operator.itemgetter(0)):
        numbers = np.array([number for _, number in steps])
        begins = delivery.begins[numbers]
        sizes = delivery.begins[numbers + 1] - begins
        skipped = begins - (np.cumsum(sizes) - sizes)
        chosen = delivery.cuts[np.repeat(skipped, sizes) + np.arange(sizes.sum())]
        for number in np.unique(chosen[:, 0]).tolist():
            block = delivery.blocks[number]
            blocks.setdefault(block.key, block)
        places = {key: place for place, key in enumerate(blocks)}
        known = [places.get(block.key, 0) for block in delivery.blocks]
        chosen[:, 0] = np.array(known)[chosen[:, 0]]
        counts += sizes.tolist()
        cuts += map(tuple, chosen.tolist())
    return counts, cuts


def arrive(contact: Contact, blocks: Sequence[Any], holders: Collection[str], homes: Homes) -> None:
    """Wait until rows lie on the workers that are fed with them, see :func:`fed_to`.

    Args:
        contact: how the cluster is talked to.
        blocks: futures of what comes there.
        holders: the workers that have it.
        homes: those that are fed.

    Raises:
        WorkerLostError: a worker is gone or silent, or does not reach a holder of rows.
        SchedulerLostError: the scheduler does not answer.
        Exception: what computing the rows again raised, when they were lost.
    """
    pause = contact.reachability.pause
    look = time.monotonic() + pause
    while any(b.status == "pending" for b in blocks) and not contact.ended(blocks, _LOOK):
        if missing := contact.missing(homes, _WHAT, holders):
            gone = ", ".join(f"worker {worker} {why}" for worker, why in missing.items())
            raise WorkerLostError(f"{gone}, awaited {_WHAT}", missing)
        if time.monotonic() > look:
            near, known = {**dict.fromkeys(holders, ()), **homes}, set(contact.reachability.apart)
            contact.check(near, _WHAT)
            found = contact.reachability.among(near)
            if apart := [why for pair, why in found.items() if pair not in known]:
                raise WorkerLostError(f"{'; '.join(apart)}, awaited {_WHAT}", {})
            look = time.monotonic() + pause
    for block in blocks:
        if block.status != "finished":
            contact.gather([block], homes, _WHAT, holders)  # raises what is wrong


def _delivered(
    contact: Contact,
    future: Any,
    ranges: np.ndarray[Any, Any],
    holders: Sequence[str],
    worker: str,
    stay: bool,
) -> Any:
    """A future of a block, or of some rows of it, that lies where a worker reaches it."""
    client = contact.client
    if holders and not any(contact.reachability.between(holder, worker) for holder in holders):
        holder, limit = holders[0], contact.limit
        _logger.info("fed rows go from %s through the client to %s", holder, worker)
        rows = brought(contact, holder, _WHAT, _rows, future, ranges)
        return client.scatter(rows, workers=[worker], direct=False, hash=False, timeout=limit)
    with of_ours():
        if len(ranges):
            near, anywhere = list(holders) or None, bool(holders)  # if the block is lost meanwhile
            where: dict[str, Any] = {"workers": near, "allow_other_workers": anywhere}
            future = client.submit(_rows, future, ranges, **where)
        if stay and worker not in holders:
            future = client.submit(_kept, future, worker, workers=[worker])
    return future


def _rows(block: Any, ranges: np.ndarray[Any, Any]) -> Any:
    """Some rows of a block, one after another.

    Dask names the task by the ranges: those of an array it reads at once.
    """
    if isinstance(block, Mapping):
        return {name: _rows(array, ranges) for name, array in block.items()}
    parts = [block[first:end] for first, end in ranges.tolist()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else block


def _kept(block: Any, worker: str) -> Any:
    """A task that brings a block to a worker, whose name makes it another task for each."""
    return block
