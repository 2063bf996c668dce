"""Moves replicas when workers are lost while nothing runs, so that mirrors exist again.

The scheduler tells by an event that a worker has left. During a run, the run itself notices it.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpexec.engine.cluster.client.lifetime import topic_of
from dpexec.engine.core.errors import ClusterError

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.recovery import Recovery
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup

__all__ = ["IdleWatch"]


class IdleWatch:
    """Moves replicas that have lost their workers while nothing runs.

    Args:
        client: a connected ``distributed.Client``.
        token: of the run.
        recovery: moves the replicas.
        group: the replicas.
        take: notes the outcome of steps that were ordered without waiting for them.
    """

    def __init__(
        self,
        client: Any,
        token: str,
        recovery: Recovery,
        group: ReplicaGroup,
        take: weakref.WeakMethod[Callable[[], None]],
    ) -> None:
        self._recovery, self._group, self._take = recovery, group, take
        self._moving: threading.Thread | None = None
        self._closed = False
        self._client, self._topic = client, topic_of(token)
        self.listen()

    def listen(self) -> None:
        """Let the scheduler tell of workers that have left; a new one must be asked again."""
        self._client.subscribe_topic(self._topic, _telling(weakref.ref(self)))

    def close(self) -> None:
        """Move nothing from now on; waits until a move in progress has ended."""
        with self._recovery.busy:
            self._closed = True

    def left(self, worker: str) -> None:
        """Called when a worker has left, on the event loop of the client; it must not block."""
        busy = self._moving is not None and self._moving.is_alive()
        if worker in self._group.homes.workers and not busy and not self._closed:
            self._moving = threading.Thread(target=self._move, name="dpexec-moves", daemon=True)
            self._moving.start()

    def _move(self) -> None:
        """Move replicas if possible; if not, the next run raises the error."""
        with self._recovery.busy, contextlib.suppress(ClusterError):
            if not self._closed and self._group.filled and self._recovery.lost is None:
                take = self._take()
                if take is not None:
                    take()
                self._recovery.surviving(self._group.survey)


def _telling(watch: weakref.ref[IdleWatch]) -> Callable[[Any], None]:
    """A handler of events that keeps the watch alive by no reference."""

    def tell(event: tuple[float, str]) -> None:
        known = watch()
        if known is not None:
            known.left(event[1])

    return tell
