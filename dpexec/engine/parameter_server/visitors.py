"""Trainers connected to a server: each connection is served on its own thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dpexec.engine.exchange.channels import Channel

__all__ = ["Visitors"]


class Visitors:
    """The trainers that are connected.

    Args:
        serve: called on a thread with a trainer's number and connection.
    """

    def __init__(self, serve: Callable[[int, Channel], None]) -> None:
        self._serve = serve
        self._present: list[tuple[threading.Thread, Channel]] = []

    def let_in(self, number: int, channel: Channel) -> None:
        """Serve a trainer on a new thread.

        Args:
            number: number of the trainer.
            channel: the connection, which is closed at the end.
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
        """Wait until all trainers have disconnected.

        Args:
            grace: seconds for last messages; then the remaining connections are closed.
        """
        deadline = time.monotonic() + grace
        for thread, channel in self._present:
            thread.join(max(deadline - time.monotonic(), 0.0))
            channel.interrupt()
        for thread, _ in self._present:
            thread.join()
