"""Workers that dask has paused, as their memory is nearly full: no task begins there."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

__all__ = ["Pauses"]

_ALL = -1  # workers that the scheduler tells of
_LEAST = 0.5  # seconds between questions


class Pauses:
    """Remembers which workers are paused, and for how long.

    Args:
        limit: seconds that a worker may be paused while somebody waits for it.
    """

    def __init__(self, limit: float) -> None:
        self._limit, self._pause = limit, max(limit / 4, _LEAST)
        self._asked = 0.0
        self._since: dict[str, float] = {}

    def is_due(self) -> bool:
        """Whether the scheduler is to be asked again."""
        return time.monotonic() - self._asked > self._pause

    async def ask(self, client: Any) -> None:
        """Ask the scheduler who is paused.

        Args:
            client: a connected ``distributed.Client``, on whose event loop this is called.
        """
        self._asked = now = time.monotonic()
        found = (await client.scheduler.identity(n_workers=_ALL))["workers"]
        paused = [worker for worker, about in found.items() if about.get("status") == "paused"]
        self._since = {worker: self._since.get(worker, now) for worker in paused}

    def too_long(self, workers: Collection[str]) -> dict[str, str]:
        """Those of some workers that have been paused for longer than the limit, and why.

        Args:
            workers: their addresses.
        """
        since = time.monotonic() - self._limit
        why = f"is paused by dask for {self._limit:g} s, as its memory is nearly full"
        return {w: why for w in workers if self._since.get(w, since) < since}
