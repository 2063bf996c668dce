"""Orders to the members of a gang as dask tasks, for clients that reach only the scheduler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import dask
from distributed import Future

from dpexec.engine.cluster.gang_messages import Order, Outcome, Part
from dpexec.engine.cluster.worker.gang import run_gang
from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.dask.annotations import of_ours

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["GangCalls"]

_LOOK = 0.5  # seconds between looks at who is still there
_counter = itertools.count()


class GangCalls:
    """Orders to all members as dask tasks, one round of orders after another.

    Args:
        contact: talks to the workers.
        parts: the parts of all members.

    Attributes:
        missing: what is wrong with workers that did not answer, by address.
    """

    is_waiting = False
    """After an interrupt, :meth:`outcomes` can always be called again."""

    def __init__(self, contact: Contact, parts: Sequence[Part]) -> None:
        self._contact, self._parts = contact, parts
        self._homes = {part.me.worker: part.me.devices for part in parts}
        self._tasks: list[Future] = []
        self.missing: Mapping[str, str] = {}

    def post(self, orders: Sequence[Order]) -> None:
        """Send each member its order.

        Args:
            orders: the orders of all members.
        """
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            found = zip(self._parts, orders, strict=True)
            self._tasks = [self._send(*each) for each in found]

    def _send(self, part: Part, order: Order) -> Future:
        key, workers = (part.task_name, _tag(part, order)), [part.me.worker]
        with of_ours(takes_resources=True):
            return self._contact.client.submit(run_gang, part, order, key=key, workers=workers)

    def outcomes(self, meanwhile: Callable[[], None] | None = None) -> list[Outcome | None]:
        """Wait for the outcomes of the orders; None stands for members that are gone.

        Args:
            meanwhile: called while members work.
        """
        self.missing = {}
        if meanwhile is not None:
            meanwhile()
        tasks = self._tasks
        while not self._contact.ended(tasks, _LOOK):
            if not self._may_go_on():
                there = self._contact.workers()
                left = zip(self._parts, tasks, strict=True)
                answering = [task for part, task in left if part.me.worker in there]
                self._contact.ended(answering, _LOOK)  # slower ones are stopped by the next epoch
                break
        found: list[Outcome | None] = []
        for part, task in zip(self._parts, tasks, strict=True):
            if task.done():
                found.append(self._outcome(part, task))
            else:
                task.cancel(force=True)
                found.append(None)
        return found

    def _outcome(self, part: Part, task: Future) -> Outcome | None:
        """The outcome of a task that has ended; None if its worker was lost."""
        home = {part.me.worker: part.me.devices}
        outcome: Outcome
        try:
            (outcome,) = self._contact.gather([task], home, "to say what a gang did")
        except WorkerLostError:
            return None
        except Exception as error:
            outcome = Outcome(error=error)
        return outcome

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
    """The part of a key that tells orders apart: the number of the first step, if there is one."""
    token = part.epoch.token[:8]
    if order.first is not None:
        return f"{token}-{order.first}"
    return f"{RESIDENT}{token}-new-{next(_counter)}"
