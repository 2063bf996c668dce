"""What is between the workers of a cluster: how fast they take bytes from each other."""

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
"""Bytes, tried in turn: the first open connections, the last take longer than the messages around
them even at 10 Gbit/s."""

_ENOUGH = 0.3
"""Seconds: what takes so long tells how fast a link is, as also far hosts answer in less."""

_WHAT = "to measure how fast they send"


def link_between(contact: Contact, homes: HomeTable) -> Link:
    """What is between workers: on one host what is known of it, else what is measured.

    Each host sends something to the next one, all at the same time; the slowest link counts.

    Args:
        contact: how workers are talked to.
        homes: the workers.

    Raises:
        WorkerLostError: some have left or are silent.
        SchedulerLostError: the scheduler is.
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
    """Seconds in which each worker gets something from the one before it."""

    def submit(function: Any, some: Any, at: str) -> Any:
        with of_ours():
            return contact.client.submit(function, some, workers=[at], pure=False)

    sent = [submit(_bytes_to_send, nbytes, worker) for worker in workers]
    made = [submit(len, some, at) for some, at in zip(sent, workers, strict=True)]
    contact.gather(made, homes.workers, _WHAT)  # all are there before any is sent
    before = [*sent[-1:], *sent[:-1]]
    came = [submit(_seconds_taken, some, at) for some, at in zip(before, workers, strict=True)]
    return max(contact.gather(came, homes.workers, _WHAT))


def _bytes_to_send(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes that cannot be compressed."""
    return np.frombuffer(os.urandom(nbytes), np.uint8)


def _seconds_taken(came: Any) -> float:
    """The seconds in which this worker got what it got last."""
    return float(get_worker().transfer_incoming_log[-1]["duration"])
