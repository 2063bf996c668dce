"""A worker that dask closes hands on its state: the worker that mirrors it may be closed, too.

When an adaptive cluster or a user makes a cluster smaller, several workers are closed at once, and
the client only sees that they have left. If all workers with replicas are closed, another worker
keeps the state until replicas move there.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from distributed import Status
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from dpexec.engine.cluster.messages import Epoch
from dpexec.engine.cluster.worker.gang import leave
from dpexec.engine.cluster.worker.own_state import own_names
from dpexec.engine.cluster.worker.slots import begin_waiting
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions, parts
from dpexec.engine.cluster.worker.worker import (
    NEVER,
    HeldState,
    WorkerReplicas,
    release,
    runs_at,
    state_at,
    take_over,
)
from dpexec.engine.dask.reach import refusal

__all__ = ["LOOK_OF_OURS", "hold_until_closed"]

LOOK_OF_OURS = "dpexec"
"""Name among a worker's extensions, and among its periodic callbacks."""
_PATIENCE = 3.0  # seconds to find a worker that takes the state of a run
_ANSWER = 1.0  # seconds for another worker to answer
_RATE = 20e6  # bytes that at least arrive in a second
_AT_ONCE = 16  # the most workers outside of the run that are asked at once
_LOOK = 0.05  # seconds between looks at whether dask is closing the worker
_POLL = 0.002  # seconds between looks at whether tasks have ended
_GUARD = 1.0  # seconds between looks at whether dask has closed the worker


class _Offer(NamedTuple):
    """What a worker can do for one that is being closed.

    Args:
        takes: whether it takes state; not if it is being closed, too.
        steps: the steps after which it has all variables of a replica.
    """

    takes: bool
    steps: frozenset[int] = frozenset()


def hold_until_closed(dask_worker: Any) -> None:
    """Let a worker hand on and then forget its state of runs when it is closed.

    Until then it also begins tasks of dpexec beside long ones of the user.
    """
    if LOOK_OF_OURS not in dask_worker.extensions:
        dask_worker.extensions[LOOK_OF_OURS] = holdings = _Holdings(dask_worker)
        dask_worker.loop.add_callback(holdings.watch)


class _Holdings:
    """An extension of a dask worker that frees its state of runs when the worker is closed.

    The process may go on: it may be the client's.

    Args:
        worker: the dask worker, which closes its extensions when it is closed.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._leaving = asyncio.Lock()

    def watch(self) -> None:
        """Notice early that dask closes the worker: it may wait long before it calls `close`.

        And let tasks begin that wait for others.
        """
        look = PeriodicCallback(self._look, _LOOK * 1000)
        self._worker.periodic_callbacks[LOOK_OF_OURS] = look  # dask stops it with the worker
        look.start()
        self._guard = asyncio.ensure_future(_end_with_process(weakref.ref(self._worker)))

    async def _look(self) -> None:
        begin_waiting(self._worker)
        if self._worker.status in (Status.closing_gracefully, Status.closing):
            await self.close()

    async def close(self) -> None:
        """Called by dask when it closes the worker."""
        async with self._leaving:
            while runs := runs_at(here := self._worker.address):  # at once: each has a limit
                await asyncio.gather(*(self._leave(run, state_at(run, here)) for run in runs))

    async def _leave(self, token: str, state: HeldState) -> None:
        state.epoch = Epoch(token, NEVER)
        leave(token, self._worker)
        with contextlib.suppress(OSError):  # it took too long, or the scheduler has just ended
            async with asyncio.timeout(_PATIENCE) as limit:
                await self._hand_on(token, state, limit)
        release(token, self._worker)

    async def _known(self) -> list[str]:
        """The workers that the scheduler knows; none if it has ended: dask would look for it long.

        This worker's own connection to the scheduler tells nothing: that ends with being closed.
        """
        scheduler = self._worker.scheduler
        return [] if await refusal(scheduler.address) else list(await scheduler.ncores())

    async def _hand_on(self, token: str, state: HeldState, limit: asyncio.Timeout) -> None:
        """Give state of replicas to the first other worker that is not being closed.

        Workers with replicas come first: they lack only what differs from replica to replica. If
        there are none, any worker keeps everything until replicas move.

        Args:
            token: of the run.
            state: of the run, on this worker.
            limit: of the time that this may take; state that takes long to arrive gets more.
        """
        while state.running:
            await asyncio.sleep(_POLL)
        if not any(state.kinds.values()):
            return
        here, known = self._worker.address, await self._known()
        members = [peer for peer in state.peers if peer in known and peer != here]
        others = [peer for peer in known if peer not in (*members, here)]  # replicas may move there
        left = [members, *(others[i : i + _AT_ONCE] for i in range(0, len(others), _AT_ONCE))]
        while left:
            peers = left.pop(0)
            answers = await asyncio.gather(*(self._ask(peer, token) for peer in peers))
            told = dict(zip(peers, answers, strict=True))
            for peer, lacks_all in _takers(state, told):
                args = dumps((token, *(_everything(state) if lacks_all else _own(state))))
                seconds = _ANSWER + len(args) / _RATE
                until = asyncio.get_running_loop().time() + seconds
                limit.reschedule(max(until, limit.when() or until))
                with contextlib.suppress(OSError):
                    if await self._call(peer, seconds, _take_over, args):
                        return
            if silent := [peer for peer, answer in told.items() if answer is None]:
                left.append(silent)

    async def _ask(self, peer: str, token: str) -> _Offer | None:
        """What a worker offers; None if it does not answer in time, but something listens there."""
        try:
            return _Offer(*await self._call(peer, _ANSWER, _offer, dumps((token,))))
        except TimeoutError:
            return _Offer(False) if await refusal(peer) else None
        except OSError:
            return _Offer(False)

    async def _call(
        self, peer: str, limit: float, function: Callable[..., Any], args: bytes
    ) -> Any:
        """What a function gives on another worker.

        Raises:
            OSError: the worker is lost, does not answer in time, or cannot run the function.
        """
        message = {"function": dumps(function), "args": args, "kwargs": b"", "wait": True}
        async with asyncio.timeout(limit):
            answer = await self._worker.rpc(peer).run(**message)
        if answer["status"] != "OK":
            raise OSError(f"worker {peer} cannot run {function.__name__}")
        return answer["result"]


def _takers(state: HeldState, told: Mapping[str, _Offer | None]) -> list[tuple[str, bool]]:
    """Those of some workers that take state, and whether they lack all variables.

    Args:
        state: of the leaving worker.
        told: what each of the others offers, if it has answered.
    """
    made = {step for versions in state.stores.values() for step in versions.steps}
    takes = [
        (peer, made.isdisjoint(offer.steps))
        for peer, offer in told.items()
        if offer and offer.takes
    ]
    return sorted(takes, key=itemgetter(1))


async def _end_with_process(found: weakref.ref[Any]) -> None:
    """Let a worker without a nanny end when it is asked to just while dask closes it.

    Its process then cancels all that its event loop does, ``Worker.close``, too. Dask calls that
    again, and it waits for ever for the first call to end.

    Args:
        found: refers to the dask worker.
    """
    try:
        while (worker := found()) is not None and worker.status != Status.closed:
            del worker
            await asyncio.sleep(_GUARD)
    except asyncio.CancelledError:
        if (worker := found()) is not None and worker.status == Status.closing:
            worker._event_finished.set()  # there is no public way
        raise


def _own(state: HeldState) -> tuple[Mapping[int, Versions], Mapping[int, Versions]]:
    """The state that a worker with replicas may lack: what closed workers left, and own state."""
    own = own_names(state.graph) if isinstance(state, WorkerReplicas) else []
    parted = parts(state.stores, dict(enumerate(own)))
    return state.left, {**state.left_own, **state.mirrors, **parted}


def _everything(state: HeldState) -> tuple[Mapping[int, Versions], Mapping[int, Versions]]:
    names = {device: versions.values.keys() for device, versions in state.stores.items()}
    return {**state.left, **parts(state.stores, names)}, {**state.left_own, **state.mirrors}


def _offer(token: str, dask_worker: Any) -> tuple[bool, frozenset[int]]:
    """The fields of an offer: what a worker can do for one that is being closed."""
    try:
        stores = state_at(token, dask_worker.address).stores
    except StaleTaskError:
        stores = {}
    steps = frozenset(step for versions in stores.values() for step in versions.steps)
    return dask_worker.status == Status.running, steps


def _take_over(
    token: str, left: Mapping[int, Versions], own: Mapping[int, Versions], dask_worker: Any
) -> bool:
    """Keep state of a worker that is being closed; False if this one is being closed, too."""
    if dask_worker.status != Status.running:
        return False
    take_over(token, dask_worker.address, left, own)
    hold_until_closed(dask_worker)
    return True
