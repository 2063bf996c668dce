"""Workers that did not answer, until they do: all programs of a client know of them.

Who has waited for a silent worker for the limit says so here. Then nobody waits for it again, and
dask computes nothing there that is fed, until it has answered one question that is asked meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from weakref import WeakKeyDictionary

from dpexec.engine.dask.calling import looked_at

__all__ = ["Silence", "silence_of"]

_LATER = 60.0  # seconds that one question to a silent worker may take
_AT_ONCE = 1.0  # seconds to wait for who may have come back since its last question ended

_known: WeakKeyDictionary[Any, Silence] = WeakKeyDictionary()


class Silence:
    """The silent workers of a client; everything runs on the event loop of the client."""

    def __init__(self) -> None:
        self._asking: dict[str, asyncio.Task[bool]] = {}
        """By worker, a question that ends when it answers, or cannot be asked any more."""

    def __len__(self) -> int:
        return len(self._asking)

    def begin(self, worker: str, ask: Callable[[str], Awaitable[bool]]) -> None:
        """Note that a worker has not answered, and ask it again in the background.

        Args:
            worker: its address.
            ask: asks it anything; gives whether it has answered, which may take for ever.
        """
        asking = self._asking.get(worker)
        if asking is None or asking.done():
            self._asking[worker] = asking = asyncio.create_task(_answered(ask(worker)))
            asking.add_done_callback(lambda done: self._see(worker, done))

    async def among(
        self, workers: Collection[str], ask: Callable[[str], Awaitable[bool]]
    ) -> frozenset[str]:
        """Those of some workers that are silent; they are asked again in the background.

        Args:
            workers: all workers that the scheduler knows.
            ask: see :meth:`begin`.
        """
        again = []
        for worker, asking in list(self._asking.items()):
            if worker not in workers:
                self._asking.pop(worker).cancel()
            elif asking.done():  # nobody was interested for a while: it may be well again
                self.begin(worker, ask)
                again.append(self._asking[worker])
        if again:
            await asyncio.wait(again, timeout=_AT_ONCE)
        return frozenset(self._asking)

    def _see(self, worker: str, asking: asyncio.Task[bool]) -> None:
        looked_at(asking)
        there = self._asking.get(worker) is asking
        if there and not asking.cancelled() and asking.exception() is None and asking.result():
            del self._asking[worker]


async def _answered(asking: Awaitable[bool]) -> bool:
    try:
        async with asyncio.timeout(_LATER):
            return await asking
    except TimeoutError:
        return False


def silence_of(client: Any) -> Silence:
    """The silent workers of a client.

    Args:
        client: a ``distributed.Client``.
    """
    return _known.setdefault(client, Silence())
