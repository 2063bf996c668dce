"""Calls of functions on workers beside their tasks; every call has a limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from dpexec.engine.core.errors import SchedulerLostError
from dpexec.engine.dask.calling import looked_at
from dpexec.engine.dask.hearing import hear_again
from dpexec.engine.dask.reach import refusal
from dpexec.engine.dask.reachability import Homes
from dpexec.engine.dask.silence import silence_of

__all__ = ["LEFT", "PING", "WorkerCalls"]

_LOOK = 0.25  # seconds between looks at who is still there
PING = os.getpid  # answered by who is alive, also by a worker that is still importing dpexec
LEFT = "has left the cluster"
_NOT_ASKED = (OSError, SchedulerLostError)
"""Errors of a call that do not come from its worker."""


class WorkerCalls:
    """Calls functions on workers; all methods run on the event loop of the client.

    Args:
        client: a connected ``distributed.Client``.
        limit: seconds in which a worker has to answer.

    Attributes:
        scheduler: its address, for errors.
    """

    def __init__(self, client: Any, limit: float) -> None:
        self._client, self._limit = client, limit
        self._silence = silence_of(client)
        self.scheduler = getattr(client.scheduler, "address", "a cluster")  # None once closed

    async def reach(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        homes: Homes,
        what: str,
        limit: float | None = None,
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The answers of workers, and what is wrong with the others, see :meth:`Contact.reach`.

        Nobody waits for a worker that is known to be silent.

        Args:
            limit: seconds in which they have to answer; None: as many as usual.
        """
        there = await self.present(what)  # dask would try for long to reach who has left
        lost = {address: LEFT for address in homes if address not in there}
        silent = await self._silence.among(there, self._ask_again)
        lost |= {address: self._why_silent(limit) for address in homes if address in silent}
        calls = {
            address: asyncio.ensure_future(self._call(address, function, args, what))
            for address in homes
            if address not in lost
        }
        try:
            lost |= await self._wait(calls, what, limit or self._limit)
        finally:
            for call in calls.values():
                call.cancel()
        answers: dict[str, Any] = {}
        for address, call in calls.items():
            if address in lost:
                continue
            if isinstance(answer := call.result(), OSError):
                lost[address] = f"cannot be reached ({answer})"
            elif isinstance(answer, Exception):
                raise answer
            else:
                answers[address] = answer
        return answers, lost

    async def _call(
        self, address: str, function: Callable[..., Any], args: Sequence[Any], what: str
    ) -> Any:
        """The answer of a worker, or its error: others are asked nevertheless."""
        try:
            answers = await self._client.run(
                function, *args, workers=[address], on_error="return", asynchronous=True
            )
        except OSError as error:
            return self._lost(f"cannot be reached ({error})", what)
        return answers[address]

    async def _wait(
        self, calls: Mapping[str, asyncio.Future[Any]], what: str, limit: float
    ) -> dict[str, str]:
        """Wait for calls, up to the limit; returns the problems of those that did not end."""
        loop = asyncio.get_running_loop()
        deadline, waiting = loop.time() + limit, dict(calls)
        lost: dict[str, str] = {}
        while waiting:
            left = max(deadline - loop.time(), 0.0)
            await asyncio.wait(waiting.values(), timeout=min(_LOOK, left))
            waiting = {address: call for address, call in waiting.items() if not call.done()}
            there = await self.present(what) if waiting else ()
            for address in [a for a in waiting if a not in there or not left]:
                lost[address] = LEFT
                if address in there:
                    lost[address] = self._why_silent(limit)
                    self._silence.begin(address, self._ask_again)
                del waiting[address]
        return lost

    def _why_silent(self, limit: float | None) -> str:
        return f"did not answer for {limit or self._limit:g} s"

    async def _ask_again(self, address: str) -> bool:
        return not isinstance(await self._call(address, PING, (), "to look again"), _NOT_ASKED)

    async def silent(self) -> frozenset[str]:
        """The workers that have not answered lately."""
        if not self._silence:
            return frozenset()
        there = await self.present("to say who is there")
        return await self._silence.among(there, self._ask_again)

    async def present(self, what: str) -> Collection[str]:
        """The workers that the scheduler knows."""
        found: Mapping[str, int] = await self.told(self._client.nthreads(asynchronous=True), what)
        hear_again(self._client)
        return found

    async def told(self, asking: Awaitable[Any], what: str) -> Any:
        """What the scheduler answers.

        Raises:
            SchedulerLostError: it does not within the limit, or has ended.
        """
        answer = asyncio.ensure_future(asking)
        try:
            async with asyncio.timeout(self._limit):
                while not answer.done():
                    await asyncio.wait([answer], timeout=_LOOK)
                    if not answer.done():
                        await self._look_for_scheduler(what)
                return await answer
        except TimeoutError as error:
            raise self._lost(f"did not answer for {self._limit:g} s", what) from error
        except OSError as error:
            raise self._lost(f"cannot be reached ({error})", what) from error
        finally:
            answer.cancel()
            answer.add_done_callback(looked_at)

    async def _look_for_scheduler(self, what: str) -> None:
        """Make sure that the scheduler's address is listened to: dask would try again for long.

        Raises:
            SchedulerLostError: nothing listens, so its process has ended.
        """
        if why := await refusal(self.scheduler):
            raise self._lost(f"has ended ({why})", what)

    def _lost(self, why: str, what: str) -> SchedulerLostError:
        return SchedulerLostError(f"the scheduler {self.scheduler} {why}, awaited {what}")
