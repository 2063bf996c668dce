"""Sends reports from the trainer to the scheduler, after installing the plugin there."""

from __future__ import annotations

import time
import warnings
import weakref
from typing import Any

from dpexec.dashboard.hub import HUB
from dpexec.dashboard.monitor import INTERVAL, Monitor, Told
from dpexec.dashboard.plugin import NAME, DashboardPlugin
from dpexec.engine.dask.plugins import install

__all__ = ["Publisher"]


class Publisher:
    """Sends a monitor's reports to the scheduler, at most twice a second.

    The client's event loop sends them, so that training does not wait.

    Args:
        client: a connected ``distributed.Client``.
        engine: the engine that trains.
        token: prefix of the tasks' tags.
    """

    def __init__(self, client: Any, engine: Any, token: str) -> None:
        self._client = weakref.ref(client)
        self._token = token
        self._told = Told()
        self._pending = False
        self._sent = 0.0
        self._viewers = 0
        self.close = weakref.finalize(self, HUB.leave, HUB.join())
        self._monitor: Monitor = engine.observers.counter
        self._monitor.listener = self.changed
        why = install(client, DashboardPlugin(), NAME)
        if why:
            self._end()
            warnings.warn(f"the scheduler gets no /dpexec page: {why}", stacklevel=2)

    def _end(self) -> None:
        """Send nothing from now on."""
        self._monitor.listener = None
        self.close()

    def changed(self) -> None:
        """A step ended."""
        client = self._client()
        if client is None or client.status == "closed":
            self._end()
            return
        if self._pending:
            return
        self._pending = True
        wait = max(0.0, self._sent + INTERVAL - time.monotonic())
        client.loop.add_callback(client.loop.call_later, wait, self._send)

    async def _send(self) -> None:
        client = self._client()
        self._pending, self._sent = False, time.monotonic()
        if client is None or client.status != "running":
            return
        try:
            reply = await client.scheduler.dpexec_report(
                report=self._monitor.report(self._told, self._viewers > 0), token=self._token
            )
            if reply is None:  # another scheduler has come, at the same address
                await client.register_plugin(DashboardPlugin(), name=NAME)
        except OSError:  # the cluster is gone; training raises its own error
            return
        except BaseException:  # what the scheduler raised, or an interrupt: reports end with it
            self._end()
            raise
        self._viewers = reply["viewers"] if reply is not None else 0
