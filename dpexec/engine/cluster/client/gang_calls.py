"""Orders to the members of a gang as dask tasks: for rows that lie on workers.

A client that does not reach the workers itself, but only dask's scheduler, sends all orders so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import dask
from distributed import Future, wait

from dpexec.engine.cluster.gang_messages import Order, Outcome, Part
from dpexec.engine.cluster.worker.gang import run_gang
from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dask.waiting import DASK_GAVE_UP

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["GangCalls"]

_LOOK = 0.5  # seconds between looks at who is still there
_counter = itertools.count()


class GangCalls:
    """Calls of all members, one after another.

    Args:
        contact: how workers are talked to.
        parts: of all members.

    Attributes:
        missing: what is wrong with workers that did not answer, by address.
        cut_off: which links to holders were found to be cut.
    """

    is_waiting = False
    """After an interrupt, :meth:`outcomes` can always be called again."""

    def __init__(self, contact: Contact, parts: Sequence[Part]) -> None:
        self._contact, self._parts = contact, parts
        self._homes = {part.me.worker: part.me.devices for part in parts}
        self._tasks: list[Future] = []
        self._holders: Collection[str] = ()
        self.missing: Mapping[str, str] = {}
        self.cut_off = ""

    def post(
        self,
        orders: Sequence[Order],
        blocks: Sequence[Sequence[Future]],
        holders: Collection[str],
    ) -> None:
        """Send each member its order.

        Args:
            orders: of all members.
            blocks: what their devices are fed that lies on workers.
            holders: the workers where it lies.
        """
        self._holders, self.cut_off = holders, ""
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            found = zip(self._parts, orders, blocks, strict=True)
            self._tasks = [self._send(*each) for each in found]

    def _send(self, part: Part, order: Order, blocks: Sequence[Future]) -> Future:
        name = "gang_" + "_".join(f"dev{device}" for device in part.me.devices)
        return self._contact.client.submit(
            run_gang,
            part,
            order,
            *blocks,
            key=(name, _tag(part, order)),
            workers=[part.me.worker],
            allow_other_workers=False,
            retries=0,
            pure=False,
        )

    def outcomes(self) -> list[Outcome | None]:
        """What became of the orders, however long that takes; None for members that are gone."""
        self.missing = {}
        tasks, pause = self._tasks, self._contact.reachability.pause
        look = time.monotonic() + pause
        while not self._ended(tasks, _LOOK):
            if self._holders and time.monotonic() > look:  # members wait for them before they begin
                self.find_cut_off()
                look = time.monotonic() + pause
            if self.cut_off or not self._may_go_on():
                there = self._contact.workers()
                left = zip(self._parts, tasks, strict=True)
                answering = [task for part, task in left if part.me.worker in there]
                self._ended(answering, _LOOK)  # who takes longer is told to stop when it goes on
                break
        found: list[Outcome | None] = []
        for part, task in zip(self._parts, tasks, strict=True):
            if task.done():
                found.append(self._outcome(part, task))
            else:
                task.cancel(force=True)
                found.append(None)
        return found

    def find_cut_off(self) -> None:
        """Find out who of members and holders does not reach whom, as far as that is news."""
        reachability = self._contact.reachability
        near = {**dict.fromkeys(self._holders, ()), **self._homes}
        known = set(reachability.apart)
        self._contact.check(near, "to find out who reaches fed rows")
        found = reachability.among(near)
        self.cut_off = "; ".join(why for pair, why in found.items() if pair not in known)

    def _outcome(self, part: Part, task: Future) -> Outcome | None:
        """What became of a task that has ended; None if its worker was lost."""
        home = {part.me.worker: part.me.devices}
        outcome: Outcome
        try:
            (outcome,) = self._contact.gather([task], home, "to say what a gang did")
        except WorkerLostError:
            return None
        except Exception as error:
            outcome = Outcome(error=error)
        return outcome

    def _ended(self, tasks: Sequence[Future], timeout: float) -> bool:
        """Whether all tasks have ended, after some seconds at most."""
        try:
            with self._contact.client.as_current():
                wait(tasks, timeout=timeout)
        except TimeoutError:
            return False
        except DASK_GAVE_UP:
            pass
        return True

    def _may_go_on(self) -> bool:
        self.missing = self._contact.missing(self._homes, "to make steps")
        if self.missing:
            return False
        for part, task in zip(self._parts, self._tasks, strict=True):
            outcome = self._outcome(part, task) if task.done() else Outcome()
            if outcome is None or outcome.error is not None:
                return False
        return True


def _tag(part: Part, order: Order) -> str:
    """What tells an order from all others: the number of its first step, if it has any."""
    token = part.epoch.token[:8]
    if order.steps:
        return f"{token}-{order.steps[0].number}"
    return f"{RESIDENT}{token}-new-{next(_counter)}"
