"""Which workers can be homes of replicas: those that answer, and that all reach each other.

A network may be parted such that scheduler and client reach workers that do not reach each other.
Of these some are left out, until they reach the others again.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.core.errors import ClusterError
from dpexec.engine.dask.annotations import ANYWHERE, of_ours, those_wanted, wanted_here
from dpexec.engine.dask.waiting import Contact

__all__ = ["Candidates"]

_WAIT = 0.2  # seconds between looks while there are no workers

_logger = logging.getLogger(__name__)


class Candidates:
    """The workers that replicas may live on.

    Args:
        contact: how workers are talked to.

    Attributes:
        looked: when it was seen last who is there.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact, self._reach = contact, contact.reachability
        self._unfit: set[str] = set()
        self._left_out: dict[str, Any] = {}
        """For each a future that ends when it is a candidate again, or at least may be."""
        self._homes: Sequence[str] = ()
        self._rehearsals: dict[str, Any] = {}
        """For those that have joined, a future that ends when they may be homes; None: they may."""
        self._wanted, self._fit = ANYWHERE, frozenset[str]()
        self.looked = time.monotonic()

    def want(self) -> bool:
        """Take over what ``dask.annotate`` says around this run.

        Returns:
            Whether that is something else than before.

        Raises:
            ClusterError: no worker that is there meets it; what was wanted before still is.
        """
        wanted = wanted_here()
        if wanted == self._wanted:
            return False
        those_wanted(self._contact.client, wanted, self._contact.workers())
        self._wanted = wanted
        return True

    def fit(self, living: Iterable[str]) -> list[str]:
        """Those of some workers that are wanted, as :meth:`living` saw it last."""
        return [worker for worker in living if worker in self._fit]

    def ready(self, fit: Iterable[str], rehearse: Callable[[str], Any]) -> list[str]:
        """Those that have what steps need but for state; the others begin to load it.

        All would wait for them in the first step otherwise.

        Args:
            fit: the workers.
            rehearse: begins that on a worker; gives a future that ends with it, well or not.
        """
        for worker in fit:
            if worker not in self._rehearsals:
                self._rehearsals[worker] = rehearse(worker)
        return [worker for worker in fit if self._is_ready(worker)]

    def _is_ready(self, worker: str) -> bool:
        future = self._rehearsals.get(worker)
        return worker in self._rehearsals and (future is None or future.done())

    def living(self) -> list[str]:
        """Those that are there, also those that are not wanted: they may have state.

        Raises:
            ClusterError: none that is wanted has come within the limit.
        """
        deadline = time.monotonic() + self._contact.limit
        while True:
            there = self._contact.workers()
            self._look_again(there)
            known = self._rehearsals or dict.fromkeys(there)  # at first, all wait for all anyhow
            self._rehearsals = {w: future for w, future in known.items() if w in there}
            self.looked = time.monotonic()
            living = [w for w in there if w not in self._left_out and w not in self._unfit]
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
        """Find out who of those that were left out need not be any more."""
        for worker, future in list(self._left_out.items()):
            if worker not in there:
                del self._left_out[worker]
            elif future.done():
                del self._left_out[worker]
                if not all(self._reach.between(worker, home) for home in self._homes):
                    self._left_out[worker] = self._contact.check_later([worker, *self._homes])

    def refuse(self, worker: str) -> None:
        """Never take a worker again: it cannot take replicas."""
        self._unfit.add(worker)

    def leave_out(self, lost: Collection[str]) -> None:
        """Let workers that may still be known to the scheduler be no homes before they answer."""
        for worker in lost:
            if worker not in self._left_out:
                with of_ours():
                    self._left_out[worker] = self._contact.client.submit(
                        _awake, workers=[worker], pure=False
                    )

    def homes(self, before: HomeTable, living: Iterable[str]) -> HomeTable:
        """Homes for all replicas, on workers that reach each other.

        Args:
            before: the homes so far, of which as many as possible stay.
            living: the workers, some of which are wanted.

        Raises:
            ClusterError: workers or the scheduler do not answer.
        """
        fit = set(self.fit(living))
        left = {worker for worker in fit if self._is_ready(worker)} or fit
        while True:
            homes = before.among(left)
            self._homes = list(homes.workers)
            self._rehearsals |= dict.fromkeys(self._homes)
            apart = self._reach.lately(self._homes)
            if not apart:
                self._contact.check(homes.workers, "to find out who reaches whom")
                apart = self._reach.among(self._homes)
            if not apart:
                return homes
            out = self._one_of(apart)
            left.discard(out)
            _logger.warning("%s: worker %s is left out", "; ".join(apart.values()), out)
            self._left_out[out] = self._contact.check_later(self._homes)

    def _one_of(self, apart: Collection[frozenset[str]]) -> str:
        """The worker that reaches least of the others; of several the one that comes last."""
        counts = Counter(worker for pair in self._reach.apart for worker in pair)
        concerned = [worker for worker in self._homes if any(worker in pair for pair in apart)]
        return max(reversed(concerned), key=counts.__getitem__)


def _awake() -> None:
    """A task that ends when a worker works again."""
