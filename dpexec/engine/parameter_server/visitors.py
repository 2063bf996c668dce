"""Trainers that have come to a server: each is served on a thread, which ends with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dpexec.engine.exchange.channels import Channel

__all__ = ["Visitors"]


class Visitors:
    """All who have come and are still there.

    Args:
        serve: what is called with a number and a connection on a thread.
    """

    def __init__(self, serve: Callable[[int, Channel], None]) -> None:
        self._serve = serve
        self._present: list[tuple[threading.Thread, Channel]] = []

    def let_in(self, number: int, channel: Channel) -> None:
        """Serve somebody.

        Args:
            number: who it is.
            channel: the connection, which is closed when it has been served.
        """
        thread = threading.Thread(target=self._attend, args=(number, channel))
        self._present.append((thread, channel))
        thread.start()

    def _attend(self, number: int, channel: Channel) -> None:
        try:
            self._serve(number, channel)
        finally:
            channel.close()

    def end(self, grace: float) -> None:
        """Wait until all have gone.

        Args:
            grace: seconds for what is still to be said; then connections are ended.
        """
        deadline = time.monotonic() + grace
        for thread, channel in self._present:
            thread.join(max(deadline - time.monotonic(), 0.0))
            channel.interrupt()
        for thread, _ in self._present:
            thread.join()
