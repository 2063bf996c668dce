"""Which workers reach each other, as far as known; and whether the client may ask them."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from dpexec.engine.core.errors import ClusterError
from dpexec.engine.dask.calling import looked_at
from dpexec.engine.dask.reach import unreachable

__all__ = ["Homes", "Reachability", "check_free", "named"]

Homes = Mapping[str, Sequence[int]]
"""Addresses of workers, with the replicas that live there."""

_LOOK = 0.5  # seconds between questions whether those that contact others are there
_LEAST = 3.0  # seconds; in less, a packet that was lost is not sent again

_Reach = Callable[..., Awaitable[tuple[dict[str, Any], dict[str, str]]]]


class Reachability:
    """Pairs of workers that do not reach each other, though the client reaches both.

    Args:
        reach: calls a function on workers, up to a limit; gives their answers.
        limit: seconds in which a worker has to answer.

    Attributes:
        apart: what was found out, by pair.
    """

    def __init__(self, reach: _Reach, limit: float) -> None:
        self._reach = reach
        self._patience = max(limit, _LEAST)
        self.apart: dict[frozenset[str], str] = {}
        self._seen: dict[frozenset[str], float] = {}  # when that was found out

    @property
    def pause(self) -> float:
        """Seconds between checks while something is awaited."""
        return self._patience / 2

    def among(self, workers: Collection[str]) -> dict[frozenset[str], str]:
        """The pairs among some workers that do not reach each other, and why."""
        there = frozenset(workers)
        return {pair: why for pair, why in self.apart.items() if pair <= there}

    def lately(self, workers: Collection[str]) -> dict[frozenset[str], str]:
        """Pairs of :meth:`among` that were found so recently that asking again is in vain."""
        since = time.monotonic() - 2 * self._patience
        found = self.among(workers)
        return {pair: why for pair, why in found.items() if self._seen[pair] > since}

    def between(self, one: str, other: str) -> bool:
        """Whether two workers reach each other."""
        return frozenset((one, other)) not in self.apart

    async def check(self, homes: Homes, what: str) -> dict[str, str]:
        """Let workers contact each other; runs on the event loop of the client.

        Args:
            homes: the workers.
            what: why they are asked.

        Returns:
            What is wrong with workers that do not answer the client either.

        Raises:
            SchedulerLostError: the scheduler does not answer.
        """
        if len(homes) < 2:
            return {}
        args = tuple(homes), self._patience
        asking = asyncio.ensure_future(
            self._reach(unreachable, args, homes, what, 2 * self._patience)
        )
        try:
            while not (await asyncio.wait([asking], timeout=_LOOK))[0]:
                _, silent = await self._reach(os.getpid, (), homes, what)
                if silent and not asking.done():  # nobody waits for what these find out
                    others = {home: homes[home] for home in homes if home not in silent}
                    return silent | await self.check(others, what)
            answers, silent = asking.result()
        finally:
            asking.cancel()
            asking.add_done_callback(looked_at)
        for pair in itertools.combinations(answers, 2):
            self.apart.pop(frozenset(pair), None)
        for worker, found in answers.items():
            for peer in found.keys() & answers.keys():
                text = f"{named(worker, homes)} does not reach {named(peer, homes)}"
                both = frozenset((worker, peer))
                self.apart[both], self._seen[both] = f"{text} ({found[peer]})", time.monotonic()
        return silent

    def check_later(
        self, loop: asyncio.AbstractEventLoop, workers: Collection[str]
    ) -> Future[dict[str, str]]:
        """Let workers contact each other, while the client does other things.

        Args:
            loop: of the client.
            workers: their addresses.

        Returns:
            A task that ends when they have.
        """
        homes = dict.fromkeys(workers, ())
        return asyncio.run_coroutine_threadsafe(self.check(homes, "to look again"), loop)


def named(address: str, homes: Homes) -> str:
    """A readable name of a worker."""
    devices = homes[address]
    if not devices:
        return f"worker {address}"
    plural = "s" if len(devices) > 1 else ""
    return f"worker {address} (replica{plural} {', '.join(map(str, devices))})"


def check_free(client: Any) -> None:
    """Refuse to ask workers while this thread pickles a graph: client and loop would wait for ever.

    Args:
        client: a ``distributed.Client``.

    Raises:
        ClusterError: it holds the lock of its futures, which its event loop needs.
    """
    if client._refcount_lock._is_owned():
        raise ClusterError(
            "a value that is on the workers of a cluster cannot be read while a graph is sent that "
            "holds it: put np.array(value) into the graph"
        )
