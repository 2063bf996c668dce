"""A gang on its workers: a member makes steps, with the collectives inside.

Every member runs the tasks of the plan that belong to its replicas, in the order of the plan, and
takes part in all collectives. Nothing is overwritten before all members have done what can fail
in a step: a failed step leaves the state of all of them as it was before it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from distributed import get_worker, secede

from dpexec.engine.cluster.gang_messages import GangStep, Order, Outcome, Part
from dpexec.engine.cluster.worker.gang_step import make_step
from dpexec.engine.cluster.worker.gang_tasks import BoundPlan
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.cluster.worker.worker import WorkerReplicas, at_work, replicas_at
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.exchange.gpus import gpu_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.nccl import Exchange
from dpexec.engine.exchange.rendezvous import CLIENT, Door, Member
from dpexec.engine.exchange.side_by_side import helpers
from dpexec.engine.exchange.wire import Channel, GangError, last_words
from dpexec.engine.threads.kernel_threads import one_kernel_thread

__all__ = ["Seat", "leave", "open_door", "run_gang", "seat_of"]


class Seat:
    """A member on its worker, between orders.

    Args:
        door: where the others come in.
        pool: threads that help with its replicas.

    Attributes:
        group: the connected gang; None before it has met.
        line: to the client; None if it does not come in.
        residing: is held by the task that takes orders from the line.
        has_left: whether the line is to be closed, by that task if there is one.
    """

    def __init__(self, door: Door, pool: ThreadPoolExecutor | None) -> None:
        self.door, self._pool = door, pool
        self.group: Group | None = None
        self.line: Line | None = None
        self.residing = threading.Lock()
        self.has_left = False
        self.step = -1
        self._channels: dict[int, Channel] | None = None
        self._bound: dict[int, BoundPlan] = {}
        self._busy = threading.Lock()

    def meet(self, part: Part) -> None:
        """Connect with the other members, and with the client if it comes in.

        Raises:
            GangError: somebody did not come.
        """
        with self._at_work(part):
            self._meet(part)

    def _meet(self, part: Part) -> dict[int, Channel]:
        if self._channels is None:
            everybody = [*part.members, CLIENT] if part.visited else part.members
            self._channels = self.door.meet(everybody, part.rank, part.limit)
            if part.visited:
                self.line = Line(self._channels.pop(len(part.members)), part.limit)
        return self._channels

    def _join(self, part: Part, place: Place) -> Group:
        """The connected gang."""
        if self.group is None:
            self.group = Group(part.members, part.rank, self._meet(part), part.limit)
            if part.by_nccl:
                assert isinstance(place, CUDAPlace)
                self.group.nccl = Exchange(self.group, place)
        return self.group

    @contextlib.contextmanager
    def _at_work(self, part: Part) -> Iterator[None]:
        """Be the only one who works with the gang."""
        if not self._busy.acquire(timeout=part.limit):
            raise GangError(f"{part.me.name} still makes steps of another run")
        try:
            yield
        finally:
            self._busy.release()

    def stop(self) -> None:
        """Leave the gang; what makes steps ends with an error."""
        if self._busy.acquire(blocking=False):
            try:
                self.leave()
            finally:
                self._busy.release()
        else:
            self.door.close()
            if self.group is not None:
                self.group.interrupt()
        self.hang_up()

    def hang_up(self) -> None:
        """Take no more orders."""
        self.has_left = True
        if self.line is not None:
            self.line.interrupt()  # which wakes the task that waits for it
            if self.residing.acquire(blocking=False):
                try:
                    self.line.close()
                finally:
                    self.residing.release()

    def leave(self, text: str = "") -> None:
        """Leave the gang; it cannot be joined again."""
        self.door.close()
        if self.group is not None:
            self.group.close(text)
        else:
            for channel in (self._channels or {}).values():
                channel.close()
        self.group, self._channels = None, {}
        self._bound.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def obey(self, replicas: WorkerReplicas, part: Part, order: Order) -> Outcome:
        """Make the steps of an order."""
        outcome = Outcome()
        with self._at_work(part):
            try:
                for step in order.steps[:1]:
                    if step.number <= self.step:
                        raise GangError(f"step {step.number} came after step {self.step}")
                group = self._join(part, replicas.place)
                before = group.bytes_sent
                if order.new:
                    replicas.bind(order.new, order.kept)
                for versions in (*replicas.stores.values(), *replicas.mirrors.values()):
                    versions.stand_at(order.base)
                for step in order.steps:
                    self.step = step.number
                    bound = self._bind(replicas, step, part.mirrored)
                    self._one_step(bound, replicas, step, outcome, step is order.steps[-1])
                    outcome.done += 1
                outcome.bytes_sent = group.bytes_sent - before
            except BaseException as error:
                outcome.error = copy_to_send(error)
                self.leave(last_words(part.me.name, self.step, error))
        return outcome

    def _one_step(
        self,
        bound: BoundPlan,
        replicas: WorkerReplicas,
        step: GangStep,
        outcome: Outcome,
        last: bool,
    ) -> None:
        outcome.fetched, noted = make_step(bound, replicas, step, self._pool, last)
        if step.recorded:
            outcome.noted = noted

    def _bind(
        self, replicas: WorkerReplicas, step: GangStep, mirrored: Sequence[Collection[str]]
    ) -> BoundPlan:
        number, base = step.binding, replicas.numbered(step.binding, step.rows)
        assert self.group is not None
        if number not in self._bound:
            self._bound = {n: bound for n, bound in self._bound.items() if replicas.knows(n)}
            self._bound[number] = BoundPlan(base, self.group, mirrored, step.persistable)
        self._bound[number].resize(base)
        return self._bound[number]


# ---- called on workers

_seats: dict[tuple[str, str], Seat] = {}


def open_door(
    token: str, secret: bytes, homes: Mapping[str, Sequence[int]], dask_worker: Any
) -> Member:
    """Let a worker wait for the other members of a new gang.

    Args:
        token: names the run.
        secret: of the run.
        homes: the devices of every worker.
        dask_worker: of this process.
    """
    leave(token, dask_worker)
    seat = _seats[token, dask_worker.address] = Seat(
        Door(dask_worker, secret),
        helpers(len(homes[dask_worker.address]), dask_worker.state.nthreads),
    )
    place = replicas_at(token, dask_worker.address).place
    return seat.door.member(homes[dask_worker.address], gpu_of(place))


def leave(token: str, dask_worker: Any) -> None:
    """Close what a worker has open for a run."""
    seat = _seats.pop((token, dask_worker.address), None)
    if seat is not None:
        seat.stop()


def seat_of(part: Part) -> Seat:
    """Where this worker, whose task calls it, takes part in a gang.

    Raises:
        StaleTaskError: it does not any more.
    """
    seat = _seats.get((part.epoch.token, get_worker().address))
    if seat is None:
        raise StaleTaskError(f"a task of a gang came when {part.me.name} had left it")
    return seat


def run_gang(part: Part, order: Order, *blocks: Any) -> Outcome:
    """A task that makes the steps of one order.

    It leaves the worker's pool of threads, so that tasks of two gangs never wait for each other's
    threads, whatever order they come in.

    Args:
        part: the member's part in the gang.
        order: what to do.
        blocks: what devices are fed that lay on workers, one after another.
    """
    seat = seat_of(part)
    secede()
    left = iter(blocks)
    order = order._replace(steps=[step.with_blocks(left) for step in order.steps])
    with at_work(part.epoch) as replicas, one_kernel_thread():
        return seat.obey(replicas, part, order)
