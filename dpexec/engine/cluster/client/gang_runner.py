"""The client's side of gangs: sends each worker its task, and waits for all of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from distributed import Future, wait

from dpexec.engine.cluster.client.made import Made, Wanted
from dpexec.engine.cluster.worker.gang import GangRunOf, GangStep, Outcome, open_door, run_gang
from dpexec.engine.compile.binding import Binding
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.core.lod import Lod
from dpexec.engine.dask.held import Fed
from dpexec.engine.dask.waiting import DASK_GAVE_UP
from dpexec.engine.exchange.gpus import how_exchanged, why_not_nccl
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.wire import GangError

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.cluster.worker.recording import Noted
    from dpexec.engine.dask.waiting import Contact

__all__ = ["GangRunner"]

_LOOK = 0.5  # seconds between looks at who is still there
_SECRET = 32


class GangRunner:
    """Runs steps as one task per worker.

    Args:
        contact: how workers are talked to.
        group: the replicas.
    """

    def __init__(self, contact: Contact, group: ReplicaGroup) -> None:
        self._contact, self._group = contact, group
        self._members: list[Member] = []
        self._cut_off = ""  # which links to holders were found to be cut
        self._why_not_nccl = ""
        self._epoch = group.epoch
        self._holders: set[str] = set()  # of what is fed
        self._missing: dict[str, str] = {}  # what is wrong with workers that did not answer

    @staticmethod
    def together(bindings: Sequence[Binding]) -> int:
        """How many of some steps go into one task: all."""
        return len(bindings)

    def run(self, steps: Sequence[Wanted], first: int, recorded: bool) -> Made:
        """Make some steps.

        Args:
            steps: which.
            first: number of the first.
            recorded: whether to note when tasks run.
        """
        if self._epoch != self._group.epoch or not self._members:
            self._gather()
        for wanted in steps:
            wanted.binding.plan.exchange = how_exchanged(self._members, self._why_not_nccl)
        once = _Once()
        self._holders, self._cut_off = set(), ""
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            futures = [
                self._submit(rank, *self._part_of(member, steps, first, recorded, once))
                for rank, member in enumerate(self._members)
            ]
        try:
            return self._put_together(self._outcomes(futures))
        except KeyboardInterrupt as interrupt:
            made = self._put_together(self._outcomes(futures))
            made.error = made.error or interrupt  # the steps are made, which must be known
            return made

    def _part_of(
        self,
        member: Member,
        steps: Sequence[Wanted],
        first: int,
        recorded: bool,
        once: _Once,
    ) -> tuple[list[GangStep], list[Future]]:
        """A member's part of some steps, and what it is fed that lies on workers."""
        found, blocks = [], []
        for index, wanted in enumerate(steps):
            feeds = wanted.feeds
            parts = [Fed.of(self._contact, feeds.values[d], member.worker) for d in member.devices]
            fed = dict(zip(member.devices, parts, strict=True))
            self._holders.update(*(part.holders for part in parts))
            blocks += [block for part in fed.values() for block in part.blocks]
            step = GangStep(
                wanted.key,
                first + index,
                {d: once(part.values) for d, part in fed.items()},
                {d: part.counts for d, part in fed.items()},
                {d: wanted.shards[d] for d in member.devices},
                feeds.persistable,
                recorded,
            )
            found.append(step)
        return found, blocks

    def _submit(self, rank: int, steps: Sequence[GangStep], blocks: Sequence[Future]) -> Future:
        """Send a member its task."""
        epoch, member = self._group.epoch, self._members[rank]
        complete, limit = self._group.complete, self._contact.limit
        run = GangRunOf(epoch, complete, rank, limit, self._group.mirrored, not self._why_not_nccl)
        name = "gang_" + "_".join(f"dev{d}" for d in member.devices)
        return self._contact.client.submit(
            run_gang,
            run,
            self._members,
            steps,
            *blocks,
            key=(name, f"{epoch.token[:8]}-{steps[0].number}"),
            workers=[member.worker],
            allow_other_workers=False,
            retries=0,
            pure=False,
        )

    def _gather(self) -> None:
        """Let the workers open their doors, with a new secret."""
        secret, homes = secrets.token_bytes(_SECRET), self._group.homes.workers
        args = self._group.epoch.token, secret, homes
        found = self._contact.ask(open_door, *args, homes=homes, what="to form a gang")
        self._members = [found[address] for address in homes]
        self._why_not_nccl = why_not_nccl(self._members)
        self._epoch = self._group.epoch

    def _outcomes(self, futures: list[Future]) -> list[Outcome | None]:
        """What became of every task; None for one whose worker is gone or does not answer."""
        self._missing = {}
        look = time.monotonic() + self._contact.reachability.pause
        while not self._ended(futures, _LOOK):
            if self._holders and time.monotonic() > look:  # members wait for them before they begin
                self._cut_off = self._find_cut_off()
                look = time.monotonic() + self._contact.reachability.pause
            if self._cut_off or not self._may_go_on(futures):
                there = self._contact.workers()
                left = zip(self._members, futures, strict=True)
                answering = [future for member, future in left if member.worker in there]
                self._ended(answering, _LOOK)  # who takes longer is told to stop when it goes on
                break
        found: list[Outcome | None] = []
        for member, future in zip(self._members, futures, strict=True):
            if future.done():
                found.append(self._outcome(member, future))
            else:
                future.cancel(force=True)
                found.append(None)
        return found

    def _find_cut_off(self) -> str:
        """Who of members and holders does not reach whom, as far as that was not known."""
        reachability = self._contact.reachability
        near = {**dict.fromkeys(self._holders, ()), **self._group.homes.workers}
        known = set(reachability.apart)
        self._contact.check(near, "to find out who reaches fed rows")
        found = reachability.among(near)
        return "; ".join(why for pair, why in found.items() if pair not in known)

    def _outcome(self, member: Member, future: Future) -> Outcome | None:
        """What became of a task that has ended; None if its worker was lost."""
        home = {member.worker: member.devices}
        outcome: Outcome
        try:
            (outcome,) = self._contact.gather([future], home, "to say what a gang did")
        except WorkerLostError:
            return None
        except Exception as error:
            outcome = Outcome(error=error)
        return outcome

    def _ended(self, futures: Sequence[Future], timeout: float) -> bool:
        """Whether all tasks have ended, after some seconds at most."""
        try:
            with self._contact.client.as_current():
                wait(futures, timeout=timeout)
        except TimeoutError:
            return False
        except DASK_GAVE_UP:
            pass
        return True

    def _may_go_on(self, futures: Sequence[Future]) -> bool:
        self._missing = self._contact.missing(self._group.homes.workers, "to make steps")
        if self._missing:
            return False
        for member, future in zip(self._members, futures, strict=True):
            outcome = self._outcome(member, future) if future.done() else Outcome()
            if outcome is None or outcome.error is not None:
                return False
        return True

    def _put_together(self, outcomes: Sequence[Outcome | None]) -> Made:
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
            self._members = []  # all have left; the next run makes a new gang
            if self._holders and not self._cut_off and isinstance(error, GangError):
                self._find_cut_off()  # so that the next attempt knows
        done = min((outcome.done for outcome in there), default=0)
        sent = sum(outcome.bytes_sent for outcome in there)
        return Made(done, fetched, noted, sent, error, self._missing)

    def _error(self, outcomes: Sequence[Outcome | None]) -> BaseException | None:
        """What went wrong first: an operator's error before those of members that heard of it."""
        errors = [o.error for o in outcomes if o is not None and o.error is not None]
        for error in errors:
            if not isinstance(error, GangError):
                return error
        if errors:
            return errors[0]
        lost = [m.name for m, o in zip(self._members, outcomes, strict=True) if o is None]
        return GangError(self._cut_off or f"{', '.join(lost)} did not answer") if lost else None


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
