"""How many workers a run wants of an adaptive cluster: one for each replica, while it trains.

Dask's scheduler computes the wanted number from waiting tasks. A gang has one running task per
worker and no waiting ones, so a cluster would never grow for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dpexec.engine.cluster.worker.log import RESIDENT
from dpexec.engine.core.places import Place, cpu_num, on_gpus

__all__ = ["Demand", "count_demands", "workers_for"]

_PAUSE = 5.0  # seconds after its last step for which a run still wants all its workers
_TARGET = "adaptive_target"  # adaptive clusters call this handler of dask's scheduler


class Demand:
    """The workers that a run wants; lives on the scheduler.

    Args:
        client: the id of its client.
        token: names the run.
        workers: how many workers it can use.

    Attributes:
        homes: addresses of the workers that have its state.
    """

    def __init__(self, client: str, token: str, workers: int) -> None:
        self._client, self._tag, self._workers = client, token[:8], workers
        self._seen = 0.0  # when tasks of the run were seen last
        self.homes: frozenset[str] = frozenset()

    def note(self, keys: Iterable[Any]) -> None:
        """Note the time if some tasks belong to the run.

        Args:
            keys: keys of tasks that a client wants.
        """
        if any(self._is_mine(key) for key in keys):
            self._seen = time.monotonic()

    def wanted(self, scheduler: Any) -> int:
        """How many workers it wants now: all while it trains, else one for its state.

        Args:
            scheduler: dask's scheduler.
        """
        known = scheduler.clients.get(self._client)
        if known is not None:
            self.note(task.key for task in known.wants_what)  # tasks of a gang are wanted all along
        return self._workers if time.monotonic() < self._seen + _PAUSE else 1

    def closable(self, scheduler: Any, valid: Iterable[Any]) -> list[Any]:
        """The workers that may be closed when fewer are wanted.

        Dask does not close workers with long-running tasks, which would begin anew elsewhere. Tasks
        of a gang may be closed: replicas move, and nothing is lost. A worker that trains still
        counts as busy, and is not closed for being idle. One worker with the run's state stays.

        Args:
            scheduler: dask's scheduler.
            valid: the states of the workers that may be closed as far as others know.
        """
        found = {state.address: state for state in valid}
        for address, state in scheduler.workers.items():
            if state.long_running and all(_stays(task.key) for task in state.long_running):
                found.setdefault(address, state)  # dask itself has left it out
        homes = sorted(self.homes & scheduler.workers.keys())
        if homes and found.keys() >= set(homes):
            del found[homes[0]]
        return list(found.values())

    def _is_mine(self, key: Any) -> bool:
        tag = str(key[-1]).removeprefix(RESIDENT) if isinstance(key, tuple) else ""
        return tag.startswith(self._tag)


def workers_for(places: Sequence[Place]) -> int:
    """How many workers replicas can use: one for each replica, or for each ``CPU_NUM`` of them.

    Args:
        places: the places of the replicas.
    """
    share = 1 if on_gpus(places) else max(cpu_num(1), 1)
    return -(-len(places) // share)


def _stays(key: Any) -> bool:
    """Whether a key is that of a gang's task that stays on its worker."""
    return isinstance(key, tuple) and str(key[-1]).startswith(RESIDENT)


def count_demands(scheduler: Any, demands: Callable[[], Iterable[Demand]]) -> None:
    """Let a scheduler add what runs want to the number that it tells adaptive clusters.

    Args:
        scheduler: dask's scheduler.
        demands: gives the demands of all runs. Only the first call for a scheduler has an effect.
    """
    asked = scheduler.handlers[_TARGET]
    if getattr(asked, "counts_demands", False):
        return

    def target(target_duration: Any = None) -> int:
        wanted = [demand.wanted(scheduler) for demand in demands()]
        return max([asked(target_duration=target_duration), *wanted])

    target.counts_demands = True  # type: ignore[attr-defined]
    scheduler.handlers[_TARGET] = target
