"""The client's end of the lines to the members of a gang: orders go out, and outcomes come back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed import Future

from dpexec.engine.cluster.gang_messages import (
    Batch,
    Order,
    Outcome,
    OutcomesTold,
    Part,
    encode,
)
from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.cluster.worker.resident import reside
from dpexec.engine.dask.annotations import of_ours
from dpexec.engine.exchange.lines import Line, wait
from dpexec.engine.exchange.rendezvous import Visitor
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.threads.interrupts import InterruptGate

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["GangLines", "hang_up"]

_LOOK = 0.5  # seconds between looks at who is still there
_PATIENCE = 60.0  # seconds in which tasks of members begin
_counter = itertools.count()


class GangLines:
    """The lines to all members.

    Args:
        contact: how workers are talked to.
        parts: of all members.
        lines: takes the lines; whoever closes them ends the tasks of the members.

    Attributes:
        missing: what is wrong with workers that did not answer, by address.
    """

    def __init__(self, contact: Contact, parts: Sequence[Part], lines: list[Line]) -> None:
        self._contact, self._parts, self._lines = contact, parts, lines
        self._homes = {part.me.worker: part.me.devices for part in parts}
        self._tasks: list[Future] = []
        self._waiting: set[int] = set()
        self._outcomes: list[Outcome | None] = []
        self._told = [OutcomesTold() for _ in parts]
        self._has_failed = False  # a member, or it is gone before it said what became of its order
        self.missing: Mapping[str, str] = {}

    def open(self, visitor: Visitor) -> None:
        """Let tasks take part for the members, and come in at their doors.

        Args:
            visitor: this process.

        Raises:
            GangError: the gang does not come together.
        """
        limit, members = self._contact.limit, self._parts[0].members
        self._tasks = [self._send_task(part) for part in self._parts]
        patience = max(limit, _PATIENCE)  # tasks may have to wait for others; who is lost is seen
        channels = visitor.visit(members, patience, self._watch())
        self._lines[:] = [Line(channel, limit, lends=True) for channel in channels]
        for task in self._tasks:
            task.add_done_callback(Future.release)

    def _send_task(self, part: Part) -> Future:
        """Let a task take orders for a member."""
        token, number = part.epoch
        key = part.task_name, f"{RESIDENT}{token[:8]}-{number}-{next(_counter)}"
        with of_ours(takes_resources=True):
            return self._contact.client.submit(reside, part, key=key, workers=[part.me.worker])

    def _watch(self) -> Any:
        """What makes sure, from time to time, that all members may still come together."""
        look = time.monotonic() + _LOOK

        def watch() -> None:
            nonlocal look
            for part, task in zip(self._parts, self._tasks, strict=True):
                if task.done():
                    raise GangError(self._why(part, task))
            if time.monotonic() > look:
                self._look("to form a gang")
                if self.missing:
                    raise GangError(
                        "; ".join(f"worker {w} {why}" for w, why in self.missing.items())
                    )
                look = time.monotonic() + _LOOK

        return watch

    def _why(self, part: Part, task: Future) -> str:
        """Why a member's task has ended."""
        home = {part.me.worker: part.me.devices}
        (why,) = self._contact.gather([task], home, "to say why a gang does not form")
        return why or f"{part.me.name} has left a gang that was about to form"

    def _look(self, what: str) -> None:
        self.missing = self._contact.missing(self._homes, what)

    # ---- orders

    def post(self, orders: Sequence[Order | list[memoryview]]) -> None:
        """Send each member its order.

        Args:
            orders: of all members; maybe as bytes already.
        """
        self.send(orders)
        self._outcomes = [None] * len(orders)
        self._waiting = set(range(len(orders)))
        self._has_failed = False

    def send(self, told: Sequence[Order | Batch | list[memoryview]]) -> None:
        """Send each member something, as soon as outcomes are awaited.

        Args:
            told: what, for all members.
        """
        messages = [each if isinstance(each, list) else encode(each) for each in told]
        for line, message in zip(self._lines, messages, strict=True):
            line.post(message)

    def push(self, seconds: float = _LOOK) -> None:
        """Send what was posted, as far as members take it; the rest waits for :meth:`outcomes`.

        Args:
            seconds: in which something must be taken.
        """
        while True:
            for rank in range(len(self._lines)):
                self._move(rank)
            busy = [line for line in self._lines if line.is_sending]
            if not busy or not wait(busy, seconds):
                return

    @property
    def is_waiting(self) -> bool:
        """Whether it was interrupted before it knew what became of all orders."""
        return bool(self._waiting)

    def outcomes(self, meanwhile: Callable[[], None] | None = None) -> list[Outcome | None]:
        """What became of the orders, however long that takes; None for members that are gone.

        An interrupt waits for them; a second one does not, and may leave half a message.

        Args:
            meanwhile: is called while members work.
        """
        self.missing, give_up = {}, 0.0
        lines, waiting = self._lines, self._waiting
        with InterruptGate() as gate:
            gate.between_tasks = True
            for line in lines:
                line.flush()
            if meanwhile is not None:
                meanwhile()
            for rank in sorted(waiting):
                if not lines[rank].is_quiet:
                    self._move(rank)
            while waiting:
                if self._has_failed:  # who takes longer is told when it goes on
                    now = time.monotonic()
                    give_up = give_up or now + _LOOK
                    if now >= give_up:
                        waiting.clear()
                        break
                seconds = max(give_up - time.monotonic(), 0.0) if give_up else _LOOK
                found = wait(map(lines.__getitem__, waiting), seconds)
                for rank in tuple(waiting):
                    if lines[rank] in found:
                        self._move(rank)
                if not found and not give_up:
                    self._look("to make steps")
                    self._has_failed = self._has_failed or bool(self.missing)
                    self._look_for_tasks()
        return self._outcomes

    def _look_for_tasks(self) -> None:
        """Note members whose tasks have ended, of which nobody else would be told anything.

        They may have been cancelled, by a user or by dask, which does so when it has lost its
        client. A task that ends by itself says so on the line, before dask knows.
        """
        for rank in tuple(self._waiting):
            task = self._tasks[rank]
            if task.done():
                self._move(rank)
                if self._tasks[rank] is task and rank in self._waiting:
                    self._waiting.discard(rank)
                    self._has_failed = True

    def _move(self, rank: int) -> None:
        """Exchange with a member what can be exchanged."""
        line = self._lines[rank]
        line.move()
        while line.messages:
            message = self._told[rank].decode(line.messages.popleft())
            if isinstance(message, Outcome):
                self._outcomes[rank] = message
                self._waiting.discard(rank)
                self._has_failed = self._has_failed or message.error is not None
            else:
                self._replace_task(rank)  # what was posted waits for the next one
        if line.lost is not None:
            self._waiting.discard(rank)
            self._has_failed = self._has_failed or self._outcomes[rank] is None

    def _replace_task(self, rank: int) -> None:
        task = self._tasks[rank] = self._send_task(self._parts[rank])
        task.add_done_callback(Future.release)

    def close(self) -> None:
        """Let the members' tasks end, and be wanted no more."""
        hang_up(self._lines)
        for task in self._tasks:
            task.release()


def hang_up(lines: list[Line]) -> None:
    """Close some lines, and forget them."""
    for line in lines:
        line.close()
    lines.clear()
