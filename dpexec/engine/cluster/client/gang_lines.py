"""The client's end of the lines to the members of a gang: it sends orders and takes outcomes."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed import Future
from distributed.client import _wait

from dpexec.engine.cluster.gang_messages import (
    Batch,
    Handover,
    Order,
    Outcome,
    OutcomesTold,
    Part,
    encode,
)
from dpexec.engine.cluster.worker.gang import is_served
from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.cluster.worker.resident import reside
from dpexec.engine.dask.annotations import of_ours
from dpexec.engine.dask.waiting import DASK_GAVE_UP
from dpexec.engine.exchange.lines import Line, wait
from dpexec.engine.exchange.rendezvous import Visitor
from dpexec.engine.exchange.wire import GangError
from dpexec.engine.threads.interrupts import InterruptGate

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact
    from dpexec.engine.exchange.words import Bells

__all__ = ["GangLines", "hang_up"]

_LOOK = 0.5  # seconds between looks at who is still there
_PATIENCE = 60.0  # seconds for the members' tasks to begin
_counter = itertools.count()


class GangLines:
    """The lines to all members.

    Args:
        contact: talks to the workers.
        parts: the parts of all members.
        lines: takes the lines. Closing them ends the members' tasks.

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
        self._has_failed = False  # a member failed, or left without an outcome
        self._bells: Bells | None = None
        self.missing: Mapping[str, str] = {}

    def open(self, visitor: Visitor) -> None:
        """Start the members' tasks, and connect to them.

        Args:
            visitor: connects for this process.

        Raises:
            GangError: the gang does not come together.
        """
        limit, members = self._contact.limit, self._parts[0].members
        self._tasks = [self._send_task(part) for part in self._parts]
        patience = max(limit, _PATIENCE)  # tasks may wait for others; lost workers are noticed
        channels = visitor.visit(members, patience, self._watch())
        self._lines[:] = [Line(channel, limit, lends=True, aligned=False) for channel in channels]
        for task in self._tasks:
            self._let_go(task)

    def _send_task(self, part: Part) -> Future:
        """Start the task that takes a member's orders."""
        token, number = part.epoch
        key = part.task_name, f"{RESIDENT}{token[:8]}-{number}-{next(_counter)}"
        with of_ours(takes_resources=True):
            return self._contact.client.submit(reside, part, key=key, workers=[part.me.worker])

    def _watch(self) -> Any:
        """A function that raises if a member cannot come any more; it asks from time to time."""
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

    def post(self, orders: Sequence[Order | Handover | list[memoryview]]) -> None:
        """Send each member its order.

        Args:
            orders: the orders of all members; they may be encoded already.
        """
        self.send(orders)
        self._outcomes = [None] * len(orders)
        self._waiting = set(range(len(orders)))
        self._has_failed = False

    def send(self, told: Sequence[Order | Batch | Handover | list[memoryview]]) -> None:
        """Queue a message for each member; it goes out when the lines move next.

        Args:
            told: the messages of all members; they may be encoded already.
        """
        for line, each in zip(self._lines, told, strict=True):
            line.post(each if isinstance(each, list) else encode(each))

    def push(self, seconds: float) -> None:
        """Send queued messages as far as members take them; :meth:`outcomes` sends the rest.

        Args:
            seconds: it returns if members take nothing for so long.
        """
        for line in self._lines:
            line.flush()
        while seconds:
            busy = [line for line in self._lines if line.is_sending]
            if not busy or not wait(busy, seconds):
                return
            for rank in range(len(self._lines)):
                self._move(rank)

    @property
    def is_waiting(self) -> bool:
        """Whether outcomes are still to come, as after an interrupt of :meth:`outcomes`."""
        return bool(self._waiting)

    def outcomes(self, meanwhile: Callable[[], None] | None = None) -> list[Outcome | None]:
        """Wait for the outcomes of the orders; None stands for members that are gone.

        An interrupt is deferred until they have come; a second one is not, and may leave half a
        message.

        Args:
            meanwhile: called while members work.
        """
        self.missing, give_up = {}, 0.0
        lines, waiting = self._lines, self._waiting
        with InterruptGate() as gate:
            gate.between_tasks = True
            for line in lines:
                line.flush()
            if meanwhile is not None:
                meanwhile()
            self._ring()
            for rank in sorted(waiting):
                if not lines[rank].is_quiet:
                    self._move(rank)
            while waiting:
                if self._has_failed:  # slower members are stopped by the next epoch
                    now = time.monotonic()
                    give_up = give_up or now + _LOOK
                    if now >= give_up:
                        waiting.clear()
                        break
                seconds = max(give_up - time.monotonic(), 0.0) if give_up else _LOOK
                found = self._wait(seconds)
                for rank in found:
                    self._move(rank)
                if not found and not give_up:
                    self._look("to make steps")
                    self._has_failed = self._has_failed or bool(self.missing)
                    self._look_for_tasks()
        if self._bells is not None:
            self._bells.over()
        return self._outcomes

    def _wait(self, seconds: float) -> list[int]:
        """Wait until members may have answered; returns them, or an empty list after a while."""
        lines = self._lines
        found = wait(map(lines.__getitem__, self._waiting), seconds)
        return [*map(lines.index, found)]

    def _ring(self) -> None:
        """Spin for a while until all members have answered."""
        lines, waiting = self._lines, self._waiting
        if self._bells is None:
            boxes = [line.inbox for line in lines if line.inbox is not None]
            if len(boxes) < len(lines):
                return
            from dpexec.engine.exchange.words import Bells  # needs numba

            self._bells = Bells(boxes)
        if len(waiting) == len(lines) and self._bells.wait(lines):
            for rank in range(len(lines)):
                self._move(rank)

    def _look_for_tasks(self) -> None:
        """Note members that nobody takes orders for, of which nobody else would be told anything.

        Their tasks may have failed, or were cancelled before they began: by a user, or by dask,
        which does so when it has lost its client. Those that had begun take orders nevertheless. A
        task that ends by itself says so on the line, before dask knows.
        """
        ended = {rank: self._tasks[rank] for rank in self._waiting if self._tasks[rank].done()}
        for rank in ended:
            self._move(rank)
        left = [r for r, task in ended.items() if self._tasks[r] is task and r in self._waiting]
        if left:
            members = [self._parts[rank].me for rank in left]
            homes = {member.worker: member.devices for member in members}
            token = self._parts[0].epoch.token
            resides, _ = self._contact.reach(is_served, token, homes=homes, what="to make steps")
            lost = {rank for rank in left if not resides.get(self._parts[rank].me.worker)}
            self._waiting -= lost
            self._has_failed = self._has_failed or bool(lost)

    def _move(self, rank: int) -> None:
        """Send to and receive from a member as much as possible without waiting."""
        line = self._lines[rank]
        line.hear()
        while line.messages:
            message = self._told[rank].decode(line.messages.popleft())
            if isinstance(message, Outcome):
                self._outcomes[rank] = message
                self._waiting.discard(rank)
                self._has_failed = self._has_failed or message.error is not None
            else:
                self._replace_task(rank)  # queued messages wait for the next task
        if line.lost is not None:
            self._waiting.discard(rank)
            self._has_failed = self._has_failed or self._outcomes[rank] is None

    def _replace_task(self, rank: int) -> None:
        task = self._tasks[rank] = self._send_task(self._parts[rank])
        self._let_go(task)

    def _let_go(self, task: Future) -> None:
        """Let dask forget a task as soon as it has ended."""
        self._contact.client.loop.add_callback(_release_at_end, task)

    def close(self) -> None:
        """Close the lines, which ends the members' tasks, and release the tasks."""
        hang_up(self._lines)
        for task in self._tasks:
            task.release()


async def _release_at_end(task: Future) -> None:
    """Wait for the end of a task on the client's event loop, and release it.

    A callback of the task would need threads that dask does not have any more when a script ends.
    """
    with contextlib.suppress(*DASK_GAVE_UP):
        await _wait([task])
    task.release()


def hang_up(lines: list[Line]) -> None:
    """Close lines, and empty the list."""
    for line in lines:
        line.close()
    lines.clear()
