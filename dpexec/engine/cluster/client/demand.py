"""What a run wants of an adaptive cluster: a worker for each replica, while it trains.

Dask's scheduler says how many workers are wanted from the tasks that wait. A gang is one task per
worker that waits for nobody, so a cluster would never grow for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.core.places import Place, cpu_num, on_gpus

__all__ = ["Demand", "count_demands", "workers_for"]

_PAUSE = 5.0  # seconds after the last step was seen in which a run still wants all its workers
_TARGET = "adaptive_target"  # what dask's scheduler is asked by adaptive clusters


class Demand:
    """The workers that a run wants; lives on the scheduler.

    Args:
        client: the identity of its client.
        token: of the run.
        workers: how many it has use for.

    Attributes:
        homes: addresses of the workers that have its state.
    """

    def __init__(self, client: str, token: str, workers: int) -> None:
        self._client, self._tag, self._workers = client, token[:8], workers
        self._seen = 0.0  # when tasks of it were there last
        self.homes: frozenset[str] = frozenset()

    def note(self, keys: Iterable[Any]) -> None:
        """Note that tasks are wanted, which may be those of the run.

        Args:
            keys: of the tasks.
        """
        if any(self._is_mine(key) for key in keys):
            self._seen = time.monotonic()

    def wanted(self, scheduler: Any) -> int:
        """How many workers it wants now: all while it trains, else one, which has its state.

        Args:
            scheduler: of dask.
        """
        known = scheduler.clients.get(self._client)
        if known is not None:
            self.note(task.key for task in known.wants_what)  # those of a gang stay
        return self._workers if time.monotonic() < self._seen + _PAUSE else 1

    def closable(self, scheduler: Any, valid: Iterable[Any]) -> list[Any]:
        """Which workers may be closed, when fewer are wanted.

        Dask closes none with tasks that left its threads, as these would begin anew elsewhere.
        Those of a gang do not: replicas move, and nothing is lost. A worker that trains stays busy
        nevertheless, and is not closed for being idle. One that has the run's state stays.

        Args:
            scheduler: of dask.
            valid: the states of those that may be closed for all that others know.
        """
        found = {state.address: state for state in valid}
        for address, state in scheduler.workers.items():
            if state.long_running and all(_stays(task.key) for task in state.long_running):
                found.setdefault(address, state)  # else another plugin keeps it
        homes = sorted(self.homes & scheduler.workers.keys())
        if homes and found.keys() >= set(homes):
            del found[homes[0]]
        return list(found.values())

    def _is_mine(self, key: Any) -> bool:
        tag = str(key[-1]).removeprefix(RESIDENT) if isinstance(key, tuple) else ""
        return tag.startswith(self._tag)


def workers_for(places: Sequence[Place]) -> int:
    """How many workers replicas have use for: one each, or ``CPU_NUM`` on each.

    Args:
        places: of the replicas.
    """
    share = 1 if on_gpus(places) else max(cpu_num(1), 1)
    return -(-len(places) // share)


def _stays(key: Any) -> bool:
    """Whether a task is one of a gang's that stay on their workers, by its key."""
    return isinstance(key, tuple) and str(key[-1]).startswith(RESIDENT)


def count_demands(scheduler: Any, demands: Callable[[], Iterable[Demand]]) -> None:
    """Let a scheduler tell adaptive clusters what runs want, too.

    Args:
        scheduler: of dask.
        demands: those of all runs; who is asked first asks for all.
    """
    asked = scheduler.handlers[_TARGET]
    if getattr(asked, "counts_demands", False):
        return

    def target(target_duration: Any = None) -> int:
        wanted = [demand.wanted(scheduler) for demand in demands()]
        return max([asked(target_duration=target_duration), *wanted])

    target.counts_demands = True  # type: ignore[attr-defined]
    scheduler.handlers[_TARGET] = target
