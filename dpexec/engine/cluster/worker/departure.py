"""A worker that dask closes hands on its state: the worker that mirrors it may be closed, too.

When an adaptive cluster or a user makes a cluster smaller, several workers are closed at once, and
the client only sees that they have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Mapping
from typing import Any

from distributed import Status
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from dpexec.engine.cluster.messages import Epoch
from dpexec.engine.cluster.worker.gang import leave
from dpexec.engine.cluster.worker.own_state import own_names
from dpexec.engine.cluster.worker.slots import begin_waiting
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions, parts
from dpexec.engine.cluster.worker.worker import WorkerReplicas, release, replicas_at, runs_at

__all__ = ["LOOK_OF_OURS", "hold_until_closed"]

LOOK_OF_OURS = "dpexec"
"""Name among a worker's extensions, and among its periodic callbacks."""
_PATIENCE = 3.0  # seconds to hand on the state of a run
_ANSWER = 1.0  # seconds for another worker to answer
_LOOK = 0.05  # seconds between looks at whether dask is closing the worker
_POLL = 0.002  # seconds between looks at whether tasks have ended
_GUARD = 1.0  # seconds between looks at whether dask has closed the worker
_NEVER = -1  # number of an epoch that no task has


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
                await asyncio.gather(*(self._leave(run, replicas_at(run, here)) for run in runs))

    async def _leave(self, token: str, replicas: WorkerReplicas) -> None:
        replicas.epoch = Epoch(token, _NEVER)
        leave(token, self._worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._hand_on(token, replicas)
        release(token, self._worker)

    @property
    def _is_connected(self) -> bool:
        """Whether the scheduler is there: dask would look for one that has ended for long."""
        stream = self._worker.batched_stream
        return stream is not None and stream.comm is not None and not stream.comm.closed()

    async def _hand_on(self, token: str, replicas: WorkerReplicas) -> None:
        """Give own state of replicas to the first other worker that is not being closed."""
        while replicas.running:
            await asyncio.sleep(_POLL)
        found = {**replicas.mirrors, **parts(replicas.stores, own_names(replicas.graph))}
        message = {"function": dumps(_take_over), "args": dumps((token, found)), "kwargs": b""}
        found = found if self._is_connected else {}  # else all workers end with their scheduler
        known = await self._worker.scheduler.ncores() if found else {}  # replicas may be moving
        for peer in dict.fromkeys((*replicas.peers, *known)) if found else ():
            if peer != self._worker.address and peer in known:
                with contextlib.suppress(OSError):  # lost, or it did not answer in time
                    async with asyncio.timeout(_ANSWER):
                        answer = await self._worker.rpc(peer).run(**message, wait=True)
                        if answer["status"] == "OK" and answer["result"]:
                            return


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


def _take_over(token: str, found: Mapping[int, Versions], dask_worker: Any) -> bool:
    """Mirror replicas of a worker that is being closed; False if this one cannot do so.

    It cannot if it is being closed, too, or takes no part in the run.
    """
    if dask_worker.status != Status.running:
        return False
    try:
        replicas = replicas_at(token, dask_worker.address)
    except StaleTaskError:
        return False
    for device, versions in found.items():
        known = replicas.mirrors.get(device)
        if device not in replicas.stores and (known is None or known.step < versions.step):
            replicas.mirrors[device] = versions
    return True
