"""Calls from the client to the workers of a cluster; every wait has a limit.

Dask would wait for ever for workers that are gone or silent. So while the client waits, it checks
the workers that it needs: they may work for any time, but their event loops must answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from distributed import CancelledError, KilledWorker
from distributed.client import _wait
from distributed.comm import CommClosedError
from distributed.scheduler import NoValidWorkerError

from dpexec.engine.core.errors import ClusterError, SchedulerLostError, WorkerLostError
from dpexec.engine.dask.calling import call, looked_at
from dpexec.engine.dask.pauses import Pauses
from dpexec.engine.dask.reachability import Homes, Reachability, check_free, named
from dpexec.engine.dask.worker_calls import LEFT, PING, WorkerCalls

__all__ = ["DASK_GAVE_UP", "Contact", "Homes"]

_LOOK = 0.25  # seconds between looks at who is still there
_FORKED = "the Client is of the process that this one was forked from: make another one here"
DASK_GAVE_UP = (CancelledError, CommClosedError, KilledWorker, NoValidWorkerError)
"""Errors of tasks that only mean that their worker is lost."""


class Contact:
    """Calls workers and takes their results, and says who did not answer.

    Args:
        client: a connected ``distributed.Client``.
        limit: seconds in which a worker has to answer.

    Attributes:
        reachability: which workers reach each other.

    Raises:
        SchedulerLostError: the client is closed.
    """

    def __init__(self, client: Any, limit: float) -> None:
        self._client, self.limit = client, limit
        self._calls = WorkerCalls(client, limit)
        self.reachability, self._pauses = Reachability(self._calls.reach, limit), Pauses(limit)
        self._process = os.getpid()
        if self._is_closed():
            raise self._client_closed()

    @property
    def client(self) -> Any:
        """The client.

        Raises:
            SchedulerLostError: the client is closed; dask's own error would be obscure.
            ClusterError: the process was forked; both would give orders to the same workers.
        """
        if os.getpid() != self._process:
            raise ClusterError(_FORKED)
        if self._is_closed():
            raise self._client_closed()
        return self._client

    def _is_closed(self) -> bool:
        return self._client.status in ("closing", "closed")

    def ask(
        self, function: Callable[..., Any], *args: Any, homes: Homes, what: str
    ) -> dict[str, Any]:
        """Call a function on workers, beside their tasks.

        Args:
            function: the function; a parameter ``dask_worker`` gets the worker.
            args: its arguments.
            homes: the workers.
            what: why they are asked, for errors.

        Returns:
            Their answers, by address.

        Raises:
            WorkerLostError: some have left or are silent; the others were asked nevertheless.
            SchedulerLostError: the scheduler is.
            Exception: what the function raised.
        """
        answers, lost = self.reach(function, *args, homes=homes, what=what)
        if lost:
            raise self._worker_lost(lost, homes, what)
        return answers

    def reach(
        self, function: Callable[..., Any], *args: Any, homes: Homes, what: str
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Call a function on those workers that are still there, see :meth:`ask`.

        Args:
            function: what is called.
            args: its arguments.
            homes: the workers.
            what: why they are asked.

        Returns:
            The answers by address, and the problems of workers that gave none.
        """
        answers, lost = self._sync(self._calls.reach, function, args, homes, what)
        return answers, lost

    def missing(self, homes: Homes, what: str, holders: Collection[str] = ()) -> dict[str, str]:
        """What is wrong with workers that have left, are silent or paused; empty if all are there.

        Args:
            homes: the workers.
            what: why they are waited for.
            holders: others whose data they need. Dask makes that again if such a worker has left,
                but not if it is silent.

        Raises:
            SchedulerLostError: the scheduler is.
        """
        return dict(self._sync(self._missing, homes, what, holders))

    def check(self, homes: Homes, what: str) -> dict[str, str]:
        """Find out which workers reach each other, and which are silent: :class:`Reachability`.

        Args:
            homes: the workers.
            what: why that matters, for errors.

        Raises:
            SchedulerLostError: the scheduler does not answer.
        """
        return dict(self._sync(self.reachability.check, homes, what))

    def check_later(self, workers: Collection[str]) -> Future[dict[str, str]]:
        """The same while the client does other things; returns a task that ends with it."""
        return self.reachability.check_later(self.client.loop.asyncio_loop, workers)

    def gather(
        self, futures: Sequence[Any], homes: Homes, what: str, holders: Collection[str] = ()
    ) -> list[Any]:
        """The results of tasks, however long these take, as long as their workers answer.

        Args:
            futures: the tasks.
            homes: the workers that they need.
            what: what they do, for errors.
            holders: other workers whose data they need, see :meth:`missing`.

        Returns:
            Their results. If there is an error, the tasks are cancelled.

        Raises:
            WorkerLostError: some workers have left, are silent or do not reach each other, or dask
                has given tasks up.
            SchedulerLostError: the scheduler is.
            Exception: what a task raised.
        """
        try:
            results: list[Any] = self._sync(self._gather, futures, homes, what, holders)
        except BaseException:
            for future in futures:  # dask would keep the error, whose frames hold the futures
                future.release()
            raise
        return results

    def ended(self, futures: Sequence[Any], seconds: float) -> bool:
        """Whether tasks have ended, or dask has given some up, after some seconds at most.

        ``distributed.wait`` needs a current client, and that changes settings of all threads.
        """
        try:
            self._sync(_wait, list(futures), seconds)
        except TimeoutError as error:  # its frames would hold the tasks until garbage is collected
            error.__traceback__ = error.__cause__ = error.__context__ = None
            return False
        except DASK_GAVE_UP:
            pass
        return True

    def holders(self, keys: Sequence[Any]) -> Mapping[Any, Sequence[str]]:
        """The workers that hold the results of tasks, by the tasks' keys.

        Args:
            keys: of the tasks.

        Raises:
            SchedulerLostError: the scheduler does not answer.
        """
        found: Mapping[Any, Sequence[str]] = self._sync(self._holders, keys)
        return found

    def workers(self) -> list[str]:
        """The addresses of all workers that the scheduler knows, sorted.

        Raises:
            SchedulerLostError: it does not answer.
        """
        return sorted(self._sync(self._calls.present, "to say who is there"))

    def silent(self) -> frozenset[str]:
        """The workers that have been silent for the limit, and have not answered since.

        Raises:
            SchedulerLostError: the scheduler does not answer.
        """
        return frozenset(self._sync(self._calls.silent))

    def _sync(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run a coroutine on the event loop of the client."""
        check_free(self.client)
        try:
            return call(self.client, function, *args)
        except (RuntimeError, SchedulerLostError) as error:
            if self._is_closed():
                raise self._client_closed() from error  # meanwhile
            raise

    # ---- on the event loop of the client

    async def _holders(self, keys: Sequence[Any]) -> Any:
        asking = self.client.scheduler.who_has(keys=[*dict.fromkeys(keys)])
        return await self._calls.told(asking, "to say who holds fed rows")

    async def _gather(
        self, futures: Sequence[Any], homes: Homes, what: str, holders: Collection[str]
    ) -> list[Any]:
        results = asyncio.ensure_future(self.client.gather(list(futures), asynchronous=True))
        near = {**dict.fromkeys(holders, ()), **homes}
        watching = [
            asyncio.ensure_future(self._watch(results, homes, what, holders)),
            asyncio.ensure_future(self._watch_links(results, near, what)),
        ]
        for watch in watching:
            watch.add_done_callback(looked_at)
        try:
            await asyncio.wait([results, *watching], return_when=asyncio.FIRST_COMPLETED)
            ended = next(future for future in (results, *watching) if future.done())
            found: list[Any] = ended.result()
            return found
        except DASK_GAVE_UP as error:
            await self._look(homes, what)
            raise WorkerLostError(f"dask gave up {what} ({error})", {}) from error
        finally:
            for watch in watching:
                watch.cancel()
            if not results.done():
                await self._give_up(futures, results)

    async def _give_up(self, futures: Sequence[Any], results: asyncio.Future[Any]) -> None:
        """Cancel tasks, which ends waits for them: cancelling a wait itself would leave parts."""
        await self.client.cancel(futures, asynchronous=True, force=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(results, return_exceptions=True), self.limit)

    async def _watch(
        self, results: asyncio.Future[Any], homes: Homes, what: str, holders: Collection[str]
    ) -> Any:
        # Being cancelled is not enough: asyncio.wait_for of Python 3.11, which dask uses, loses a
        # cancellation that comes when what it waits for is just done.
        while not results.done():
            await asyncio.sleep(_LOOK)
            await self._look(homes, what, holders)

    async def _watch_links(self, results: asyncio.Future[Any], homes: Homes, what: str) -> Any:
        """Make sure that workers reach each other, except pairs that are known not to."""
        while not results.done():
            await asyncio.sleep(self.reachability.pause)
            known = set(self.reachability.apart)
            await self.reachability.check(homes, what)
            found = self.reachability.among(homes)
            if new := [why for pair, why in found.items() if pair not in known]:
                raise WorkerLostError(f"{'; '.join(new)}, awaited {what}", {})

    async def _look(self, homes: Homes, what: str, holders: Collection[str] = ()) -> None:
        """Make sure that workers are there.

        Raises:
            WorkerLostError: they are not.
        """
        if lost := await self._missing(homes, what, holders):
            raise self._worker_lost(lost, {**dict.fromkeys(holders, ()), **homes}, what)

    async def _missing(
        self, homes: Homes, what: str, holders: Collection[str] = ()
    ) -> dict[str, str]:
        near = {**dict.fromkeys(holders, ()), **homes}
        _, lost = await self._calls.reach(PING, (), near, what)
        if self._pauses.is_due():
            await self._calls.told(self._pauses.ask(self.client), what)
        lost = {w: why for w, why in lost.items() if w in homes or why != LEFT}
        return self._pauses.too_long(homes) | lost

    # ---- errors

    def _worker_lost(self, lost: Mapping[str, str], homes: Homes, what: str) -> WorkerLostError:
        parts = [f"{named(address, homes)} {why}" for address, why in lost.items()]
        return WorkerLostError(f"{', '.join(parts)}, awaited {what}", lost)

    def _client_closed(self) -> SchedulerLostError:
        return SchedulerLostError(
            f"the Client of {self._calls.scheduler} is closed, by the program or because the "
            "scheduler is gone: what was trained there and not read since is lost. Go on from a "
            "checkpoint, with a new CompiledProgram; Executor.close() before the client's close "
            "loses nothing"
        )
