"""Fewer wake-ups of Dask's event loops while members of a gang stay on workers.

These loops wake some hundred times a second to look at their own health. Each time takes about a
fifth of a millisecond of a core, and delays all members, which wait for each other in every step.
So does a task of somebody else that keeps Python's lock.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from distributed import Nanny, Worker, get_worker

from dpexec.engine.cluster.worker.departure import LOOK_OF_OURS

__all__ = ["fewer_wakeups", "fewer_wakeups_of_nannies", "short_turns"]

_SECONDS = {"profile": 0.1, "tick": 0.1, LOOK_OF_OURS: 0.25}
"""Between calls of a worker's periodic callbacks, by their name there.

Dask's profiler takes samples in the first, and measures delays of the loop in the second."""
_NANNY_SECONDS = {"tick": 0.5}
"""Of a nanny, whose delays no page shows: Dask warns of those above three seconds."""

_TURN = 0.0005
"""Seconds after which a thread that computes in Python gives way to a member; usually 5 ms."""

_turns: list[float] = []  # what was set when each member of this process came; the first is usual
_slowed: weakref.WeakKeyDictionary[Worker, _Slowed] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


class _Slowed(NamedTuple):
    """How many members stay on a worker, and how often it would call what is called less often."""

    members: int
    usual: Mapping[str, float]


@contextlib.contextmanager
def fewer_wakeups() -> Iterator[None]:
    """Let the event loop of this task's worker wake up less often."""
    worker = get_worker()
    with _lock:
        members, usual = _slowed.get(worker) or _Slowed(0, _slow(worker, _SECONDS))
        _slowed[worker] = _Slowed(members + 1, usual)
    try:
        yield
    finally:
        with _lock:
            members, usual = _slowed[worker]
            _slowed[worker] = _Slowed(members - 1, usual)
            if members == 1:
                for name, milliseconds in usual.items():
                    worker.periodic_callbacks[name].callback_time = milliseconds
                del _slowed[worker]


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Let Python's threads take turns more often, as tasks run beside the member of this one.

    A member needs Python's lock for some microseconds of every step, and all others wait for it.
    """
    with _lock:
        _turns.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_turns[-1], _TURN))
    try:
        yield
    finally:
        with _lock:
            usual = _turns.pop()
            if not _turns:
                sys.setswitchinterval(usual)


def fewer_wakeups_of_nannies(cluster: Any) -> None:
    """Let nannies in this process wake up its event loop less often, as long as they exist.

    Args:
        cluster: Dask's object for the cluster; None: this process has none.
    """
    servers = getattr(cluster, "workers", None)
    for server in servers.values() if isinstance(servers, dict) else ():
        if isinstance(server, Nanny):
            _slow(server, _NANNY_SECONDS)


def _slow(server: Any, seconds: Mapping[str, float]) -> dict[str, float]:
    """Call periodic callbacks less often; returns how often they were called, in milliseconds."""
    usual = {}
    for name, pause in seconds.items():
        called = server.periodic_callbacks.get(name)
        if called is not None:
            usual[name] = called.callback_time
            called.callback_time = max(called.callback_time, pause * 1000)
    return usual
