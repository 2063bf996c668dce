"""The client's side of gangs: forms the gang, orders steps, and waits for their outcomes.

Members stay on their workers as long as replicas keep their homes. Orders go to them over direct
lines (:mod:`.gang_lines`), or as dask tasks (:mod:`.gang_calls`).
"""

from __future__ import annotations

import functools
import itertools
import logging
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dpexec.engine.cluster.client.binding_registry import News
from dpexec.engine.cluster.client.gang_calls import GangCalls
from dpexec.engine.cluster.client.gang_lines import GangLines, hang_up
from dpexec.engine.cluster.client.gang_orders import GangOrders, KnownForm, Once, StepForms
from dpexec.engine.cluster.client.step_outcome import StepOutcome, StepRequest, error_of
from dpexec.engine.cluster.gang_messages import Batch, Handover, Order, Outcome, Part
from dpexec.engine.cluster.worker.gang import open_door
from dpexec.engine.cluster.worker.wakeups import fewer_wakeups_of_nannies
from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dask.deliveries import Fed, arrive, fed_to
from dpexec.engine.dask.reachability import check_free
from dpexec.engine.exchange.gpus import how_exchanged, why_not_nccl
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.rendezvous import Member, Visitor
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.messages import Epoch, Noted
    from dpexec.engine.dask.waiting import Contact
    from dpexec.engine.feeds.coming import Coming
    from dpexec.engine.feeds.splitting import Feeds

__all__ = ["GangRunner"]

_SECRET = 32  # bytes
_LONG = 0.5  # seconds in which working members take some of a run that is only ordered
_SOON = 0.002  # seconds for working members to take some of a batch that is sent ahead
_REACH = 5.0  # seconds after which a worker counts as one that the client cannot connect to

_logger = logging.getLogger(__name__)


class GangRunner:
    """Runs steps on members that stay on their workers.

    Args:
        contact: talks to the workers.
        group: the replicas.
        coming: knows batches of later runs; None: nothing is known of them.
    """

    tells = True
    """Whether orders also tell of new bindings."""

    def __init__(self, contact: Contact, group: ReplicaGroup, coming: Coming | None = None) -> None:
        self._contact, self._group, self._later = contact, group, coming
        self.members: list[Member] = []
        self._why_not_nccl, self._epoch = "", group.epoch
        self._open: list[Line] = []  # which end with this object
        self._lines: GangLines | None = None
        self._calls = GangCalls(contact, ())
        self._coming: dict[int, _Coming] = {}  # by id of what devices are fed
        self._forms = StepForms()
        self._numbers, self._over = itertools.count(1), deque[int]()  # of batches
        weakref.finalize(self, hang_up, self._open)

    @staticmethod
    def together(bindings: Sequence[Binding]) -> int:
        """How many of some steps one order takes: all."""
        return len(bindings)

    @property
    def is_open(self) -> bool:
        """Whether members wait for orders on lines, so that orders are only sent."""
        return self._lines is not None and self._epoch == self._group.epoch

    def start(
        self, steps: Sequence[StepRequest], first: int, wait: bool
    ) -> Callable[[], StepOutcome] | None:
        """Order steps whose bindings all members know.

        Args:
            steps: the steps.
            first: number of the first step.
            wait: whether the caller waits for their outcome at once, which sends what is left.

        Returns:
            A function that waits for their outcome. None if they were not ordered: no members wait
            for orders, or workers with fed rows were lost.
        """
        lines = self._lines
        if lines is None:
            return None
        try:
            for wanted in steps:
                wanted.binding.plan.exchange = how_exchanged(self.members, self._why_not_nccl)
            lines.post(self._repeated(steps, first) or self._orders(steps, first, False))
            lines.push(0.0 if wait else _LONG)
            if self._later is not None and self._later.may_follow:
                self._send_ahead(steps[-1].feeds)
                lines.push(0.0 if wait else _SOON)
            return functools.partial(self._finish, lines)
        except WorkerLostError:
            self.part()
            return None
        except BaseException:
            self.part()
            raise

    def form_of(self, step: StepRequest) -> KnownForm | None:
        """The form of a step, for others of its sizes; None if members know none."""
        return self._forms.of(step)

    @property
    def may_repeat(self) -> bool:
        """Whether members wait for orders, and nothing is to be told or sent beside these."""
        if self._coming or self._over or (self._later is not None and self._later.may_follow):
            return False
        return self.is_open

    def knows(self, form: KnownForm) -> bool:
        """Whether members still know a form."""
        return self._forms.knows(form)

    def make(self, orders: Sequence[list[Any] | Handover]) -> StepOutcome:
        """Make a step, whose orders are encoded and of a form that members know, or hand over."""
        lines = self._lines
        assert lines is not None
        try:
            lines.post(orders)
        except BaseException:
            self.part()
            raise
        return self._finish(lines)

    def hand_over(self, orders: Sequence[Handover]) -> Sequence[Mapping[str, Any]] | None:
        """Let members read or set values, between steps.

        Returns:
            What was read, per device; None if a member could not do it.

        Raises:
            WorkerLostError: members are gone or silent.
        """
        check_free(self._contact.client)  # as for all calls
        made = self.make(orders)
        if made.missing:
            raise WorkerLostError(str(made.error), made.missing)
        if isinstance(made.error, KeyboardInterrupt):
            raise made.error
        if made.error is not None:
            _logger.info("values go through dask's scheduler: %s", made.error)
        return None if made.error is not None else made.fetched

    def _finish(self, lines: GangLines) -> StepOutcome:
        """The outcome of the steps that were started."""
        try:
            return self._concluded(lines)
        except BaseException:
            self.part()
            raise

    def run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        """Make some steps.

        Args:
            steps: the steps.
            first: number of the first step.
            recorded: whether to note when tasks run.
            news: new bindings, and those to keep.
        """
        try:
            if self._epoch != self._group.epoch or not self.members:
                self._gather()
            for wanted in steps:
                wanted.binding.plan.exchange = how_exchanged(self.members, self._why_not_nccl)
            return self._run(steps, first, recorded, news)
        except GangError as error:
            missing = self._lines.missing if self._lines is not None else {}
            self.part()
            if not missing:  # who does not come may be paused
                missing = self._contact.missing(self._group.homes.workers, "to form a gang")
            return StepOutcome(0, [], error=error, missing=missing)
        except BaseException:
            self.part()  # a member may have received half an order
            raise

    def _run(
        self, steps: Sequence[StepRequest], first: int, recorded: bool, news: News
    ) -> StepOutcome:
        later = self._later is not None and self._later.may_follow
        ahead = functools.partial(self._send_ahead, steps[-1].feeds) if later else None
        orders = self._orders(steps, first, recorded)
        if news.new:  # all compile before the first step, in which members wait for each other
            telling = Order(self._group.complete, (), *news.told)
            made = self._made([telling] * len(orders))
            if made.error is not None:
                return made
        return self._made(orders, ahead)

    def _orders(self, steps: Sequence[StepRequest], first: int, recorded: bool) -> list[Order]:
        """The orders of all members for some steps, in full."""
        coming = self._delivered([wanted.feeds for wanted in steps])
        fed = [each.fed for each in coming]
        over = [self._over.popleft() for _ in range(len(self._over))] if self._over else ()
        batches = [each.number if each.lines is self._lines else 0 for each in coming]
        told = GangOrders(steps, fed, batches, first, recorded)
        needed: dict[Any, Any] = {}
        parts = []
        for member in self.members:
            blocks: dict[Any, Any] = {}
            parts.append((told.of(member.devices, blocks), [*blocks]))
            needed |= blocks
        form = 0
        if not recorded and not needed:
            form = self._forms.new(steps, [mine for mine, _ in parts])
        base = self._group.complete
        orders = [Order(base, mine, (), (), blocks, over, form) for mine, blocks in parts]
        if needed:
            holders = frozenset[str]().union(*(part.holders for parts in fed for part in parts))
            arrive(self._contact, [*needed.values()], holders, self._group.homes.workers)
        return orders

    def _repeated(self, steps: Sequence[StepRequest], first: int) -> list[list[Any]] | None:
        """The orders for a step whose form members know; None if they do not."""
        if len(steps) > 1:
            return None
        (step,), batch, over = steps, 0, self._over
        if self._coming:
            known = self._coming.get(id(step.feeds))
            batch = known.number if known is not None and known.lines is self._lines else 0
        gone = [*over]
        found = self._forms.told(step, self._group.complete, first, batch, gone)
        if found is not None:
            for _ in gone:
                over.popleft()
        return found

    def ahead(self, batches: Sequence[Feeds]) -> None:
        """Send rows of later steps to the workers that make these, if a gang exists.

        Args:
            batches: the feeds of later steps; rows are sent as long as these objects exist.
        """
        if self.members and self._epoch == self._group.epoch:
            self._deliver(batches)

    def _send_ahead(self, feeds: Feeds) -> None:
        """Send the members the batches that are likely to be fed next, while they work."""
        if self._later is None or self._lines is None:
            return
        for later in self._later.after(feeds):
            known = self._coming.get(id(later))
            if known is None or known.lines is not self._lines:
                (fed,) = self._deliver([later])
                number = next(self._numbers)
                if id(later) not in self._coming:
                    weakref.finalize(later, _forget, self._coming, id(later), self._over)
                self._coming[id(later)] = _Coming(self._epoch, fed, number, self._lines)
                once = Once()
                self._lines.send(
                    [
                        Batch(number, {device: once(fed[device].values) for device in m.devices})
                        for m in self.members
                    ]
                )

    def _delivered(self, batches: Sequence[Feeds]) -> list[_Coming]:
        """The feeds of some steps, on their way to the members."""
        if not self._coming:
            return [_Coming(self._epoch, fed) for fed in self._deliver(batches)]
        known = [self._coming.get(id(feeds)) for feeds in batches]
        there = [None if k is None or k.epoch != self._epoch else k for k in known]
        lacking = [feeds for feeds, k in zip(batches, there, strict=True) if k is None]
        others = iter(self._deliver(lacking))
        return [k or _Coming(self._epoch, next(others)) for k in there]

    def _deliver(self, batches: Sequence[Feeds]) -> list[list[Fed]]:
        homes = self._group.homes.address
        every = [pair for feeds in batches for pair in zip(homes, feeds.values, strict=True)]
        found = fed_to(self._contact, every, True, self._group.epoch)
        return [found[first : first + len(homes)] for first in range(0, len(found), len(homes))]

    def _made(
        self, orders: Sequence[Order], meanwhile: Callable[[], None] | None = None
    ) -> StepOutcome:
        """Send orders, and wait for their outcome."""
        way = self._calls if self._lines is None else self._lines
        way.post(orders)
        return self._concluded(way, meanwhile)

    def _concluded(
        self, way: GangLines | GangCalls, meanwhile: Callable[[], None] | None = None
    ) -> StepOutcome:
        try:
            return self._put_together(way, way.outcomes(meanwhile))
        except KeyboardInterrupt as interrupt:
            if way.is_waiting:
                raise
            made = self._put_together(way, way.outcomes())
            made.error = made.error or interrupt  # the steps are made, and must be counted
            return made

    # ---- the gang

    def _gather(self) -> None:
        """Let the workers open their doors, with a new secret, and connect.

        Raises:
            GangError: the gang does not come together.
            WorkerLostError: workers do not answer.
        """
        self.part()
        secret, homes = secrets.token_bytes(_SECRET), self._group.homes.workers
        args = self._group.epoch.token, secret, homes
        found = self._contact.ask(open_door, *args, homes=homes, what="to form a gang")
        members = [found[address] for address in homes]
        fewer_wakeups_of_nannies(self._contact.client.cluster)
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
            self._forms = StepForms([member.devices for member in members])
        self.members, self._epoch = members, self._group.epoch

    def _parts(self, members: Sequence[Member], visited: bool) -> list[Part]:
        group, limit, by_nccl = self._group, self._contact.limit, not self._why_not_nccl
        rest = limit, group.mirrored, by_nccl, visited
        return [Part(group.epoch, members, rank, *rest) for rank in range(len(members))]

    def part(self) -> None:
        """Let the members' tasks end; the next run makes a new gang."""
        if self._lines is not None:
            self._lines.close()
        self._lines, self.members, self._forms = None, [], StepForms()
        for key, known in self._coming.items():  # batches exist longer than lines
            self._coming[key] = _Coming(known.epoch, known.fed)

    # ---- what became of orders

    def _put_together(
        self, way: GangLines | GangCalls, outcomes: Sequence[Outcome | None]
    ) -> StepOutcome:
        devices = len(self._group.homes.address)
        fetched: list[dict[str, Any]] = [{}] * devices
        noted: list[Noted | None] = [None] * devices
        there, sent, failed = [], 0, False
        for member, outcome in zip(self.members, outcomes, strict=True):
            if outcome is not None:
                failed = failed or outcome.error is not None
                for device in member.devices:
                    fetched[device] = outcome.fetched.get(device, {})
                    noted[device] = outcome.noted
                there.append(outcome.done)
                sent += outcome.bytes_sent
        if len(there) == len(outcomes) and not failed:
            return StepOutcome(min(there), fetched, noted, sent)
        error = error_of(outcomes, [member.name for member in self.members])
        self.part()  # all have left
        return StepOutcome(min(there, default=0), fetched, noted, sent, error, way.missing)


class _Coming(NamedTuple):
    """The feeds of a step, parts of which may have been sent before its order.

    Args:
        epoch: the epoch in which rows of blocks were sent.
        fed: the feed of each device.
        number: of the batch with which values were sent, too; 0: they were not.
        lines: the lines over which the batch was sent.
    """

    epoch: Epoch
    fed: list[Fed]
    number: int = 0
    lines: GangLines | None = None


def _forget(coming: dict[int, _Coming], key: int, over: deque[int]) -> None:
    """Forget feeds that no longer exist; members may forget their batch."""
    known = coming.pop(key)
    if known.number:
        over.append(known.number)
