"""The workers that can be homes of replicas: they answer, and all of them reach each other.

A broken network may leave workers that scheduler and client reach, but that do not reach each
other. Some of them are left out until they reach the others again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from dpexec.engine.cluster.client.losses import named
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.core.errors import ClusterError, WorkerLostError
from dpexec.engine.dask.annotations import ANYWHERE, of_ours, those_wanted, wanted_here
from dpexec.engine.dask.fitness import misfits, nobody_fits
from dpexec.engine.dask.waiting import Contact

__all__ = ["Candidates"]

_WAIT = 0.2  # seconds between looks while there are no workers

_logger = logging.getLogger(__name__)


class Candidates:
    """The workers that replicas may live on.

    Args:
        contact: talks to the workers.

    Attributes:
        looked: when the list of workers was read last, on the monotonic clock.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact, self._reach = contact, contact.reachability
        self._refused: dict[str, str] = {}
        self._left_out: dict[str, Any] = {}
        """By worker, a future that ends when it may be a candidate again."""
        self._homes: Sequence[str] = ()
        self._rehearsals: dict[str, Any] = {}
        """By worker, a future that ends when it has loaded what homes need; None: it has."""
        self._wanted, self._fit = ANYWHERE, frozenset[str]()
        self.looked = time.monotonic()

    def want(self) -> bool:
        """Read which workers ``dask.annotate`` asks for around this run.

        Returns:
            Whether it asks for other workers than before.

        Raises:
            ClusterError: there is no such worker; the earlier wish stays in force.
        """
        wanted = wanted_here()
        if wanted == self._wanted:
            return False
        those_wanted(self._contact.client, wanted, self._contact.workers())
        self._wanted = wanted
        return True

    def fit(self, living: Iterable[str]) -> list[str]:
        """The wanted ones of some workers, as of the last call of :meth:`living`."""
        return [worker for worker in living if worker in self._fit]

    def ready(self, fit: Iterable[str], rehearse: Callable[[str], Any]) -> list[str]:
        """The workers that have loaded what steps need besides state; the others begin to load.

        Without this, all workers would wait for a new one in its first step.

        Args:
            fit: the workers.
            rehearse: begins to load on a worker; gives a future that ends when that ends or fails.
        """
        for worker in fit:
            if worker not in self._rehearsals:
                self._rehearsals[worker] = rehearse(worker)
        return [worker for worker in fit if self._is_ready(worker)]

    def _is_ready(self, worker: str) -> bool:
        future = self._rehearsals.get(worker)
        return worker in self._rehearsals and (future is None or future.done())

    def living(self, begins: bool = False) -> list[str]:
        """The workers that answer, also those that are not wanted: they may have state.

        Args:
            begins: whether there is no state yet; then nobody waits if no worker can take any.

        Raises:
            ClusterError: no wanted worker has come within the limit, or none can take replicas.
        """
        deadline = time.monotonic() + self._contact.limit
        while True:
            there = self._contact.workers()
            self._look_again(there)
            known = self._rehearsals or dict.fromkeys(there)  # the first workers load together
            self._rehearsals = {w: future for w, future in known.items() if w in there}
            self.looked = time.monotonic()
            unfit = self._refused | misfits(self._contact, there, soon=not begins)
            living = [w for w in there if w not in self._left_out and w not in unfit]
            if begins and there and unfit.keys() >= set(there):
                raise nobody_fits({worker: unfit[worker] for worker in there})
            why = f"the cluster of {self._contact.client} has no workers"
            try:
                self._fit = frozenset(those_wanted(self._contact.client, self._wanted, living))
            except ClusterError as error:
                why, self._fit = str(error), frozenset()
            if self._fit:
                return living
            if time.monotonic() > deadline:
                limit = f"{self._contact.limit:g} s"
                raise ClusterError(f"{why}, and none has come for {limit}")
            time.sleep(_WAIT)

    def _look_again(self, there: Collection[str]) -> None:
        """Take back workers that were left out, and that reach the others again."""
        for worker, future in list(self._left_out.items()):
            if worker not in there:
                del self._left_out[worker]
            elif future.done():
                del self._left_out[worker]
                if not all(self._reach.between(worker, home) for home in self._homes):
                    self._left_out[worker] = self._contact.check_later([worker, *self._homes])

    def refused(self, workers: Sequence[str], error: Exception) -> WorkerLostError:
        """Never use workers again, as they cannot take replicas; returns the error that says so.

        Args:
            workers: their addresses.
            error: what they raised.
        """
        why = f"cannot take replicas ({type(error).__name__}: {error})"
        for worker in workers:
            self._refused[worker] = why
            _logger.warning("worker %s %s", worker, why)
        told = f"{', '.join(f'worker {worker}' for worker in workers)} {why}"
        return WorkerLostError(told, dict.fromkeys(workers, why))

    def leave_out(self, lost: Collection[str]) -> None:
        """Leave out lost workers until they answer; the scheduler may still list them."""
        for worker in lost:
            if worker not in self._left_out:
                with of_ours():
                    self._left_out[worker] = self._contact.client.submit(
                        _awake, workers=[worker], pure=False
                    )

    def is_left_out(self, worker: str) -> bool:
        """Whether a worker that counts as lost has not answered yet."""
        return worker in self._left_out

    def homes(self, before: HomeTable, living: Iterable[str]) -> HomeTable:
        """Homes for all replicas, on workers that reach each other.

        Args:
            before: the homes so far; as few replicas as possible move.
            living: the workers that answer, some of which are wanted.

        Raises:
            WorkerLostError: workers do not answer.
            ClusterError: the scheduler does not answer.
        """
        fit = set(self.fit(living))
        left = {worker for worker in fit if self._is_ready(worker)} or fit
        while True:
            homes = before.among(left)
            self._homes = list(homes.workers)
            self._rehearsals |= dict.fromkeys(self._homes)
            apart = self._reach.lately(self._homes)
            if not apart:
                silent = self._contact.check(homes.workers, "to find out who reaches whom")
                if silent:
                    raise WorkerLostError(named(silent, homes), silent)
                apart = self._reach.among(self._homes)
            if not apart:
                return homes
            out = self._one_of(apart)
            left.discard(out)
            _logger.warning("%s: worker %s is left out", "; ".join(apart.values()), out)
            self._left_out[out] = self._contact.check_later(self._homes)

    def _one_of(self, apart: Collection[frozenset[str]]) -> str:
        """The worker that reaches the fewest others; the last one if there are several."""
        counts = Counter(worker for pair in self._reach.apart for worker in pair)
        concerned = [worker for worker in self._homes if any(worker in pair for pair in apart)]
        return max(reversed(concerned), key=counts.__getitem__)


def _awake() -> None:
    """A task that ends when a worker works again."""
