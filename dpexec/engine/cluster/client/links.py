"""The speed of the links between workers of a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed import get_worker

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.compile.plans.bucket_size import TASKS, Link
from dpexec.engine.dask.annotations import of_ours

if TYPE_CHECKING:
    from dpexec.engine.dask.waiting import Contact

__all__ = ["link_between"]

_SENT = 1, 1 << 18, 1 << 22
"""Sizes in bytes that are sent in turn. The first transfer opens connections; the last one takes
longer than the messages around it, even at 10 Gbit/s."""

_ENOUGH = 0.3
"""Seconds: a transfer that takes longer measures a link, as far hosts answer in less."""

_WHAT = "to measure how fast they send"


def link_between(contact: Contact, homes: HomeTable) -> Link:
    """The speed of the links: known for one host, measured between hosts.

    Each host sends bytes to the next one, all at the same time; the slowest link counts.

    Args:
        contact: talks to the workers.
        homes: the workers of the replicas.

    Raises:
        WorkerLostError: workers have left or do not answer.
        SchedulerLostError: the scheduler has left or does not answer.
    """
    workers = [homes.address[device] for device in homes.hosts]
    if len(workers) == 1:
        return TASKS
    for nbytes in _SENT:
        seconds = _ring(contact, homes, workers, nbytes)
        if seconds > _ENOUGH and nbytes > 1:
            break
    return Link(TASKS.latency, nbytes / seconds)


def _ring(contact: Contact, homes: HomeTable, workers: list[str], nbytes: int) -> float:
    """Seconds until each worker has got some bytes from the one before it; the longest time."""

    def submit(function: Any, some: Any, at: str) -> Any:
        with of_ours():
            return contact.client.submit(function, some, workers=[at], pure=False)

    sent = [submit(_bytes_to_send, nbytes, worker) for worker in workers]
    made = [submit(len, some, at) for some, at in zip(sent, workers, strict=True)]
    contact.gather(made, homes.workers, _WHAT)  # all bytes exist before any are sent
    before = [*sent[-1:], *sent[:-1]]
    came = [submit(_seconds_taken, some, at) for some, at in zip(before, workers, strict=True)]
    return max(contact.gather(came, homes.workers, _WHAT))


def _bytes_to_send(nbytes: int) -> np.ndarray[Any, Any]:
    """Random bytes, which cannot be compressed."""
    return np.frombuffer(os.urandom(nbytes), np.uint8)


def _seconds_taken(came: Any) -> float:
    """The seconds of this worker's latest transfer."""
    return float(get_worker().transfer_incoming_log[-1]["duration"])
