"""The client's side of gangs: gathers the workers, orders steps, and waits for what they give.

Members stay on their workers as long as replicas keep their homes. Orders go to them over direct
lines (:mod:`.gang_lines`), or as dask tasks (:mod:`.gang_calls`).
"""

from __future__ import annotations

import logging
import secrets
import weakref
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import Future

from dpexec.engine.cluster.client.binding_registry import News
from dpexec.engine.cluster.client.gang_calls import GangCalls
from dpexec.engine.cluster.client.gang_lines import GangLines, hang_up
from dpexec.engine.cluster.client.step_outcome import StepOutcome, StepRequest
from dpexec.engine.cluster.gang_messages import GangStep, Order, Outcome, Part
from dpexec.engine.cluster.worker.gang import open_door
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.core.lod import Lod
from dpexec.engine.dask.held import Fed
from dpexec.engine.exchange.gpus import how_exchanged, why_not_nccl
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.rendezvous import Member, Visitor
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.messages import Noted
    from dpexec.engine.dask.waiting import Contact

__all__ = ["GangRunner"]

_SECRET = 32  # bytes
_REACH = 5.0  # seconds in which a worker takes a connection of the client, or is out of its reach

_logger = logging.getLogger(__name__)


class GangRunner:
    """Runs steps on members that stay on their workers.

    Args:
        contact: how workers are talked to.
        group: the replicas.
    """

    tells = True
    """Orders also tell of new bindings."""

    def __init__(self, contact: Contact, group: ReplicaGroup) -> None:
        self._contact, self._group = contact, group
        self._members: list[Member] = []
        self._why_not_nccl = ""
        self._epoch = group.epoch
        self._open: list[Line] = []  # which end with this object
        self._lines: GangLines | None = None
        self._calls = GangCalls(contact, ())
        weakref.finalize(self, hang_up, self._open)

    @staticmethod
    def together(bindings: Sequence[Binding]) -> int:
        """How many of some steps go into one order: all."""
        return len(bindings)

    def run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        """Make some steps.

        Args:
            steps: which.
            first: number of the first.
            recorded: whether to note when tasks run.
            news: of bindings.
        """
        try:
            if self._epoch != self._group.epoch or not self._members:
                self._gather()
            for wanted in steps:
                wanted.binding.plan.exchange = how_exchanged(self._members, self._why_not_nccl)
            return self._run(steps, first, recorded, news)
        except GangError as error:
            missing = self._lines.missing if self._lines is not None else {}
            self.part()
            return StepOutcome(0, [], error=error, missing=missing)
        except BaseException:
            self.part()  # a member may have half an order
            raise

    def _run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        once, holders = _Once(), set[str]()
        orders: list[Order] = []
        blocks: list[list[Future]] = []
        for member in self._members:
            found, lie_there = self._part_of(member, steps, first, recorded, once, holders)
            orders.append(Order(self._group.complete, found))
            blocks.append(lie_there)
        if news.new:  # all compile before any makes a step: in that, others would wait for it
            telling = Order(self._group.complete, (), *news.told)
            made = self._made([telling] * len(orders), [()] * len(orders), ())
            if made.error is not None:
                return made
        return self._made(orders, blocks, holders)

    def _made(
        self,
        orders: Sequence[Order],
        blocks: Sequence[Sequence[Future]],
        holders: Collection[str],
    ) -> StepOutcome:
        """What becomes of orders."""
        way: GangLines | GangCalls
        if self._lines is not None and not any(blocks):
            way = self._lines
            way.post(orders)
        else:
            way = self._calls
            way.post(orders, blocks, holders)
        try:
            return self._put_together(way, way.outcomes(), bool(holders))
        except KeyboardInterrupt as interrupt:
            if way.is_waiting:
                raise
            made = self._put_together(way, way.outcomes(), bool(holders))
            made.error = made.error or interrupt  # the steps are made, which must be known
            return made

    def _part_of(
        self,
        member: Member,
        steps: Sequence[StepRequest],
        first: int,
        recorded: bool,
        once: _Once,
        holders: set[str],
    ) -> tuple[list[GangStep], list[Future]]:
        """A member's part of some steps, and what it is fed that lies on workers."""
        found, blocks = [], []
        for index, wanted in enumerate(steps):
            feeds = wanted.feeds
            parts = [Fed.of(self._contact, feeds.values[d], member.worker) for d in member.devices]
            fed = dict(zip(member.devices, parts, strict=True))
            holders.update(*(part.holders for part in parts))
            blocks += [block for part in fed.values() for block in part.blocks]
            step = GangStep(
                wanted.key.number,
                wanted.key.rows,
                first + index,
                {d: once(part.values) for d, part in fed.items()},
                {d: part.counts for d, part in fed.items()},
                {d: wanted.shards[d] for d in member.devices},
                feeds.persistable,
                recorded,
            )
            found.append(step)
        return found, blocks

    # ---- the gang

    def _gather(self) -> None:
        """Let the workers open their doors, with a new secret, and come in.

        Raises:
            GangError: the gang does not come together.
            WorkerLostError: workers do not answer.
        """
        self.part()
        secret, homes = secrets.token_bytes(_SECRET), self._group.homes.workers
        args = self._group.epoch.token, secret, homes
        found = self._contact.ask(open_door, *args, homes=homes, what="to form a gang")
        members = [found[address] for address in homes]
        self._why_not_nccl = why_not_nccl(members)
        visitor = Visitor(self._contact.client.security, secret)
        why_not = visitor.why_not(members, min(self._contact.limit, _REACH))
        if why_not:
            _logger.warning("orders go through dask's scheduler: no way to %s", why_not)
        parts = self._parts(members, not why_not)
        self._calls = GangCalls(self._contact, parts)
        if not why_not:
            self._lines = GangLines(self._contact, parts, self._open)
            self._lines.open(visitor)
        self._members, self._epoch = members, self._group.epoch

    def _parts(self, members: Sequence[Member], visited: bool) -> list[Part]:
        group, limit, by_nccl = self._group, self._contact.limit, not self._why_not_nccl
        rest = limit, group.mirrored, by_nccl, visited
        return [Part(group.epoch, members, rank, *rest) for rank in range(len(members))]

    def part(self) -> None:
        """Let the members' tasks end; the next run makes a new gang."""
        if self._lines is not None:
            self._lines.close()
        self._lines, self._members = None, []

    # ---- what became of orders

    def _put_together(
        self, way: GangLines | GangCalls, outcomes: Sequence[Outcome | None], held: bool
    ) -> StepOutcome:
        devices = sum(len(member.devices) for member in self._members)
        fetched: list[dict[str, Any]] = [{} for _ in range(devices)]
        noted: list[Noted | None] = [None] * devices
        for member, outcome in zip(self._members, outcomes, strict=True):
            for device in member.devices if outcome is not None else ():
                assert outcome is not None
                fetched[device] = outcome.fetched.get(device, {})
                noted[device] = outcome.noted
        there = [outcome for outcome in outcomes if outcome is not None]
        error = self._error(outcomes)
        if error is not None:
            self.part()  # all have left
            if held and not self._calls.cut_off and isinstance(error, GangError):
                self._calls.find_cut_off()  # so that the next attempt knows
        done = min((outcome.done for outcome in there), default=0)
        sent = sum(outcome.bytes_sent for outcome in there)
        return StepOutcome(done, fetched, noted, sent, error, way.missing)

    def _error(self, outcomes: Sequence[Outcome | None]) -> BaseException | None:
        """What went wrong first: an operator's error before those of members that heard of it."""
        errors = [o.error for o in outcomes if o is not None and o.error is not None]
        for error in errors:
            if not isinstance(error, GangError):
                return error
        if errors:
            return errors[0]
        lost = [m.name for m, o in zip(self._members, outcomes, strict=True) if o is None]
        return (
            GangError(self._calls.cut_off or f"{', '.join(lost)} did not answer") if lost else None
        )


class _Once:
    """Makes views of the same numbers one object, which then travels once.

    Without a reader, all steps of a run are fed the same arrays.
    """

    def __init__(self) -> None:
        self._known: dict[Any, np.ndarray[Any, Any]] = {}

    def __call__(
        self, values: Mapping[str, np.ndarray[Any, Any]]
    ) -> dict[str, np.ndarray[Any, Any]]:
        return {name: self._known.setdefault(_where(a), a) for name, a in values.items()}


def _where(array: Any) -> Any:
    """What says which numbers an array holds."""
    if isinstance(array, Lod):
        return id(array)
    return array.__array_interface__["data"], array.shape, array.strides, array.dtype
