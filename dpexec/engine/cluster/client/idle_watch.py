"""Losses while nothing runs: replicas move at once, and a second loss finds them mirrored again.

The scheduler tells by an event that a worker has left. A run finds that out by itself.
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
    """Lets replicas that have lost their workers move while nobody runs anything.

    Args:
        client: a connected ``distributed.Client``.
        token: of the run.
        recovery: moves them.
        group: the replicas.
        take: takes what became of steps that were only ordered, if somebody still knows of any.
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
        client.subscribe_topic(topic_of(token), _telling(weakref.ref(self)))

    def close(self) -> None:
        """Let nothing move any more, and wait for what does."""
        with self._recovery.busy:
            self._closed = True

    def left(self, worker: str) -> None:
        """A worker has left; called on the event loop of the client, which must not wait."""
        busy = self._moving is not None and self._moving.is_alive()
        if worker in self._group.homes.workers and not busy and not self._closed:
            self._moving = threading.Thread(target=self._move, name="dpexec-moves", daemon=True)
            self._moving.start()

    def _move(self) -> None:
        """Move replicas, if that is possible; else the next run says what is wrong."""
        with self._recovery.busy, contextlib.suppress(ClusterError):
            if not self._closed and self._group.filled and self._recovery.lost is None:
                take = self._take()
                if take is not None:
                    take()
                self._recovery.surviving(self._group.survey)


def _telling(watch: weakref.ref[IdleWatch]) -> Callable[[Any], None]:
    """What handles events, and keeps nothing alive."""

    def tell(event: tuple[float, str]) -> None:
        known = watch()
        if known is not None:
            known.left(event[1])

    return tell
