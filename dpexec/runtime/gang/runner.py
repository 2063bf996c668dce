"""The client's side of gangs: sends each worker its task, and waits for all of them."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
from distributed import Future, wait

from dpexec.runtime.binding import Binding
from dpexec.runtime.feed import Feeds
from dpexec.runtime.gang.members import GangStep, Outcome, leave, open_door, run_gang
from dpexec.runtime.gang.rendezvous import Member
from dpexec.runtime.gang.wire import GangError
from dpexec.runtime.steps import Shard

if TYPE_CHECKING:
    from dpexec.runtime.cluster_recording import Noted

__all__ = ["GangRun", "GangRunner"]

_LOOK = 1.0  # seconds between looks at who is still there
_SECRET = 32

_gone: weakref.WeakKeyDictionary[Any, list[str]] = weakref.WeakKeyDictionary()
"""Per client, the runs that nobody needs any more: the next gang makes workers forget them."""


@dataclass
class GangRun:
    """What a gang did.

    Args:
        done: how many steps all members completed.
        fetched: what is fetched of the last one, per device.
        noted: what was recorded, per device.
        bytes_sent: by all members, through sockets.
        error: why it ended early.
    """

    done: int
    fetched: list[dict[str, Any]]
    noted: list[Noted | None]
    bytes_sent: int
    error: BaseException | None


class GangRunner:
    """Runs steps as one task per worker.

    Args:
        client: a connected ``distributed.Client``.
        token: names the run on the workers.
        addresses: the worker of every device.
        limit: seconds that a member may be silent when it is waited for.
    """

    def __init__(self, client: Any, token: str, addresses: Sequence[str], limit: float) -> None:
        self._client, self._token, self._limit = client, token, limit
        self._homes: dict[str, list[int]] = {}
        for device, address in enumerate(addresses):
            self._homes.setdefault(address, []).append(device)
        self._members: list[Member] = []
        self._latest = -1
        self._gone = _gone.setdefault(client, [])
        weakref.finalize(self, self._gone.append, token)

    def close(self) -> None:
        """Let the workers close what they have open."""
        there = self._client.scheduler_info(n_workers=-1)["workers"]
        workers = [address for address in self._homes if address in there]
        if self._members and workers:
            self._client.run(leave, self._token, workers=workers)
        self._members = []

    def run(
        self,
        keys: Mapping[Binding, Any],
        bindings: Sequence[Binding],
        batches: Sequence[Feeds],
        shards: Sequence[Sequence[Shard]],
        recorded: bool = False,
    ) -> GangRun:
        """Make some steps.

        Args:
            keys: what the workers know the bindings by.
            bindings: what runs in each step.
            batches: what the devices are fed in each step.
            shards: their parts of each step.
            recorded: whether to note when tasks run.
        """
        if not self._members:
            self._gather()
        first = self._latest + 1
        self._latest += len(bindings)
        tag = f"{self._token[:8]}-{first}"
        futures: list[Future] = []
        once = _Once()
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1TB"}):
            for rank, member in enumerate(self._members):
                steps = [
                    GangStep(
                        keys[binding],
                        first + index,
                        {d: once(feeds.values[d]) for d in member.devices},
                        {d: parts[d] for d in member.devices},
                        feeds.persistable,
                        recorded,
                    )
                    for index, (binding, feeds, parts) in enumerate(
                        zip(bindings, batches, shards, strict=True)
                    )
                ]
                name = "gang_" + "_".join(f"dev{d}" for d in member.devices)
                futures.append(
                    self._client.submit(
                        run_gang,
                        self._token,
                        self._members,
                        rank,
                        steps,
                        self._limit,
                        key=(name, tag),
                        workers=[member.worker],
                        allow_other_workers=False,
                        retries=0,
                        pure=False,
                    )
                )
        try:
            outcomes = self._outcomes(futures)
        except KeyboardInterrupt:
            self._outcomes(futures)  # the steps are made on the workers: this must be known here
            raise
        return self._put_together(outcomes)

    def _gather(self) -> None:
        """Let the workers open their doors, with a new secret."""
        secret = secrets.token_bytes(_SECRET)
        homes = {address: tuple(devices) for address, devices in self._homes.items()}
        gone, self._gone[:] = list(self._gone), []
        found = self._client.run(open_door, self._token, secret, homes, gone, workers=list(homes))
        self._members = [found[address] for address in homes]

    def _outcomes(self, futures: list[Future]) -> list[Outcome | None]:
        """What became of every task; None for one whose worker is gone or does not answer."""
        while not _ended(futures, _LOOK):
            if not self._may_go_on(futures):
                _ended(futures, self._limit + _LOOK)
                break
        found: list[Outcome | None] = []
        for future in futures:
            if future.status == "finished":
                found.append(future.result(timeout=self._limit))
            elif future.status == "error":
                found.append(Outcome(error=future.exception(timeout=self._limit)))
            else:
                future.cancel(force=True)
                found.append(None)
        return found

    def _may_go_on(self, futures: Sequence[Future]) -> bool:
        there = self._client.scheduler_info(n_workers=-1)["workers"]
        if any(member.worker not in there for member in self._members):
            return False
        ended = [future for future in futures if future.done()]
        return not any(f.status == "error" or f.result().error is not None for f in ended)

    def _put_together(self, outcomes: Sequence[Outcome | None]) -> GangRun:
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
            self._dissolve(outcomes)
        done = min((outcome.done for outcome in there), default=0)
        return GangRun(done, fetched, noted, sum(o.bytes_sent for o in there), error)

    def _error(self, outcomes: Sequence[Outcome | None]) -> BaseException | None:
        """What went wrong first: an operator's error before those of members that heard of it."""
        errors = [o.error for o in outcomes if o is not None and o.error is not None]
        for error in errors:
            if not isinstance(error, GangError):
                return error
        if errors:
            return errors[0]
        lost = [m.name for m, o in zip(self._members, outcomes, strict=True) if o is None]
        return GangError(f"{', '.join(lost)} did not answer") if lost else None

    def _dissolve(self, outcomes: Sequence[Outcome | None]) -> None:
        """The next run makes a new gang; members that do not answer are not asked to leave."""
        members = zip(self._members, outcomes, strict=True)
        answering = [member.worker for member, outcome in members if outcome is not None]
        self._members = []
        if answering:
            self._client.run(leave, self._token, workers=answering)


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


def _where(array: np.ndarray[Any, Any]) -> Any:
    """What says which numbers an array holds."""
    return array.__array_interface__["data"], array.shape, array.strides, array.dtype


def _ended(futures: Sequence[Future], timeout: float) -> bool:
    """Whether all tasks have ended, after some seconds at most."""
    try:
        wait(futures, timeout=timeout)
    except TimeoutError:
        return False
    return True
