"""A worker that dask closes hands on what it has: whoever mirrors it may be closed with it.

That is what adaptive clusters do, and whoever makes a cluster smaller: they close several workers
at once, and the client only sees that these have left.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from distributed import Status
from distributed.protocol.pickle import dumps
from tornado.ioloop import PeriodicCallback

from dpexec.engine.cluster.messages import Epoch
from dpexec.engine.cluster.worker.gang import leave
from dpexec.engine.cluster.worker.own_state import own_names
from dpexec.engine.cluster.worker.versions import StaleTaskError, Versions
from dpexec.engine.cluster.worker.worker import WorkerReplicas, release, replicas_at, runs_at

__all__ = ["hold_until_closed"]

_NAME = "dpexec"  # among the extensions of a worker
_PATIENCE = 3.0  # seconds in which a run has to be handed on
_ANSWER = 1.0  # seconds in which another worker has to answer
_LOOK = 0.05  # seconds between looks at whether the worker is to be closed
_POLL = 0.002  # seconds
_NEVER = -1  # number of an epoch in which no task comes


def hold_until_closed(worker: Any) -> None:
    """Let a worker of dask hand on, and then forget, what it holds of runs when it is closed."""
    if _NAME not in worker.extensions:
        worker.extensions[_NAME] = holdings = _Holdings(worker)
        worker.loop.add_callback(holdings.watch)


class _Holdings:
    """What a worker holds of runs: it ends with the worker, whose process may be the client's.

    Args:
        worker: of dask, which closes its extensions when it is closed.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._leaving = asyncio.Lock()

    def watch(self) -> None:
        """Look whether the worker is to be closed: dask may wait for long before it closes it."""
        look = PeriodicCallback(self._look, _LOOK * 1000)
        self._worker.periodic_callbacks[_NAME] = look  # dask stops it
        look.start()

    async def _look(self) -> None:
        if self._worker.status in (Status.closing_gracefully, Status.closing):
            await self.close()

    async def close(self) -> None:
        """Called by dask."""
        async with self._leaving:
            while runs := runs_at(self._worker.address):
                await self._leave(runs[0], replicas_at(runs[0], self._worker.address))

    async def _leave(self, token: str, replicas: WorkerReplicas) -> None:
        replicas.epoch = Epoch(token, _NEVER)
        leave(token, self._worker)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await self._hand_on(token, replicas)
        release(token, self._worker)

    async def _hand_on(self, token: str, replicas: WorkerReplicas) -> None:
        """Give what only some have to the first of the other workers that stays."""
        while replicas.running:
            await asyncio.sleep(_POLL)
        names = own_names(replicas.graph)
        found = {d: versions.part(names[d]) for d, versions in replicas.stores.items() if names[d]}
        found = {**replicas.mirrors, **found}
        message = {"function": dumps(_take_over), "args": dumps((token, found)), "kwargs": b""}
        known = await self._worker.scheduler.ncores() if found else {}  # replicas may be moving
        for peer in dict.fromkeys((*replicas.peers, *known)) if found else ():
            if peer != self._worker.address and peer in known:
                with contextlib.suppress(OSError):  # or its limit is over
                    async with asyncio.timeout(_ANSWER):
                        answer = await self._worker.rpc(peer).run(**message, wait=True)
                        if answer["status"] == "OK" and answer["result"]:
                            return


def _take_over(token: str, found: Mapping[int, Versions], dask_worker: Any) -> bool:
    """Mirror replicas of a worker that is closed; False: this one is, too, or has left the run."""
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
