"""A gang on its workers: its members make steps, and exchange values inside of steps.

Every member runs the tasks of the plan that belong to its replicas, in the order of the plan, and
takes part in all collectives. No member overwrites anything before all have done what can fail in a
step. So a failed step leaves the state of all members as it was.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from distributed import get_worker, secede

from dpexec.engine import kernels
from dpexec.engine.cluster.gang_messages import Batch, Order, Outcome, OutcomesToTell, Part
from dpexec.engine.cluster.repeated_steps import RepeatedOrder, StepForm
from dpexec.engine.cluster.worker.gang_step import GangSteps
from dpexec.engine.cluster.worker.step_groups import StepGroups
from dpexec.engine.cluster.worker.telling import copy_to_send
from dpexec.engine.cluster.worker.versions import StaleTaskError
from dpexec.engine.cluster.worker.worker import WorkerReplicas, at_work, replicas_at
from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.gpus import gpu_of
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.nccl import Exchange
from dpexec.engine.exchange.rendezvous import CLIENT, Door, Member
from dpexec.engine.exchange.wire import GangError, last_words
from dpexec.engine.threads.kernel_threads import one_kernel_thread

__all__ = ["Seat", "is_served", "leave", "open_door", "run_gang", "seat_of"]


class Seat:
    """A member on its worker, between orders.

    Args:
        door: the door at which the others connect.
        threads: how many threads of the worker may work.
        groups: tells dask's scheduler which tasks steps consist of.

    Attributes:
        group: the connected gang; None before it has met.
        line: the line to the client; None if the client does not connect.
        batches: batches that came before the steps that use them, by number.
        forms: remembered forms of steps, by number.
        outcomes: encodes outcomes for the client.
        binding: number of the binding that ran last.
        residing: held by the task that takes orders from the line.
        has_left: whether the line is to be closed, by that task if there is one.
    """

    def __init__(self, door: Door, threads: int, groups: StepGroups) -> None:
        self.door, self._threads, self.groups = door, threads, groups
        self.group: Group | None = None
        self.line: Line | None = None
        self.batches: dict[int, Batch] = {}
        self.forms: dict[int, StepForm] = {}
        self.outcomes = OutcomesToTell()
        self.binding = -1
        self.residing = threading.Lock()
        self.has_left = False
        self.step = -1
        self._channels: dict[int, Channel] | None = None
        self._steps: GangSteps | None = None
        self._busy = threading.Lock()

    def meet(self, part: Part) -> None:
        """Connect to the other members, and to the client if it takes part.

        Raises:
            GangError: a member did not come.
        """
        self._begin_work(part)
        try:
            self._meet(part)
        finally:
            self._busy.release()

    def _meet(self, part: Part) -> dict[int, Channel]:
        if self._channels is None:
            everybody = [*part.members, CLIENT] if part.visited else part.members
            self._channels = self.door.meet(everybody, part.rank, part.limit)
            if part.visited:
                self.line = Line(self._channels.pop(len(part.members)), part.limit, lends=True)
        return self._channels

    def _join(self, part: Part, replicas: WorkerReplicas) -> tuple[Group, GangSteps]:
        """The connected gang, and the object that makes this member's steps."""
        if self.group is None or self._steps is None:
            group = Group(part.members, part.rank, self._meet(part), part.limit)
            if replicas.spec.native and group.on_one_host:  # then all members have numba
                kernels.load()
                group.has_words = True
            if part.by_nccl:
                assert isinstance(replicas.place, CUDAPlace)
                group.nccl = Exchange(group, replicas.place)
            self.group, how = group, (part.mirrored, self._threads, self.groups)
            self._steps = GangSteps(replicas, group, *how)
        return self.group, self._steps

    def _begin_work(self, part: Part) -> None:
        """Take the lock on the gang; the caller releases it."""
        if not self._busy.acquire(timeout=part.limit):
            raise GangError(f"{part.me.name} still makes steps of another run")

    def stop(self) -> None:
        """Leave the gang; a step that is being made ends with an error."""
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
            self.line.interrupt()  # wakes the task that waits for orders
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
        self.batches.clear()
        if self._steps is not None:
            self._steps.close()
        self._steps = None

    def forget(self, batches: Collection[int]) -> None:
        """Forget batches that no later step uses, by number."""
        for number in batches:
            self.batches.pop(number, None)

    def obey(self, replicas: WorkerReplicas, part: Part, order: Order | RepeatedOrder) -> Outcome:
        """Make the steps of an order."""
        outcome = Outcome()
        self._begin_work(part)
        try:
            if order.first is not None and order.first <= self.step:
                raise GangError(f"step {order.first} came after step {self.step}")
            group, steps = self._join(part, replicas)
            before = group.bytes_sent
            if order.new:
                replicas.bind(order.new, order.kept)
            for versions in (*replicas.stores.values(), *replicas.mirrors.values()):
                versions.stand_at(order.base)
            for step in order.each():
                self.step, self.binding = step.number, step.binding
                outcome.fetched, outcome.noted = steps.make(step, step.number == order.last)
                outcome.done += 1
            outcome.bytes_sent = group.bytes_sent - before
        except BaseException as error:
            self.groups.fail(error, part.task_name)
            outcome.error = copy_to_send(error)
            outcome.noted = None if self._steps is None else self._steps.broken_off()
            self.leave(last_words(part.me.name, self.step, error))
        finally:
            self._busy.release()
        return outcome


# ---- called on workers

_seats: dict[tuple[str, str], Seat] = {}


def open_door(
    token: str, secret: bytes, homes: Mapping[str, Sequence[int]], dask_worker: Any
) -> Member:
    """Open the door of a worker for the other members of a new gang.

    Args:
        token: names the run.
        secret: of the run.
        homes: the devices of every worker.
        dask_worker: the dask worker of this process.
    """
    leave(token, dask_worker)
    seat = _seats[token, dask_worker.address] = Seat(
        Door(dask_worker.address, dask_worker.security, secret),
        dask_worker.state.nthreads,
        StepGroups(dask_worker, token, len(homes)),
    )
    place = replicas_at(token, dask_worker.address).place
    return seat.door.member(homes[dask_worker.address], gpu_of(place))


def leave(token: str, dask_worker: Any) -> None:
    """Let a worker leave the gang of a run, if it takes part in one."""
    seat = _seats.pop((token, dask_worker.address), None)
    if seat is not None:
        seat.stop()


def seat_of(part: Part) -> Seat:
    """The seat of this worker in a gang; called in a task of the worker.

    Raises:
        StaleTaskError: the worker takes no part in the gang any more.
    """
    seat = _seats.get((part.epoch.token, get_worker().address))
    if seat is None:
        raise StaleTaskError(f"a task of a gang came when {part.me.name} had left it")
    return seat


def is_served(token: str, dask_worker: Any) -> bool:
    """Whether a task takes orders for the member on a worker.

    Args:
        token: names the run.
        dask_worker: of this process.
    """
    seat = _seats.get((token, dask_worker.address))
    return seat is not None and seat.residing.locked()


def run_gang(part: Part, order: Order) -> Outcome:
    """A task that makes the steps of one order.

    It leaves the worker's pool of threads, so that tasks of two gangs never wait for each other's
    threads, whatever order they come in.

    Args:
        part: the member's part in the gang.
        order: the order.
    """
    seat = seat_of(part)
    secede()
    order = order.with_blocks(get_worker().data)
    with at_work(part.epoch) as replicas, one_kernel_thread():
        return seat.obey(replicas, part, order)
