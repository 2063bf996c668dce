"""The homes of replicas: the worker on which each of them lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dpexec.engine.strategy.placement import place_replicas

__all__ = ["HomeTable"]


class HomeTable:
    """The worker of each replica. A table never changes; when replicas move, a new one is made.

    Args:
        address: the worker of each replica.
    """

    def __init__(self, address: Sequence[str]) -> None:
        self.address = list(address)
        self.workers: dict[str, tuple[int, ...]] = {}
        """The replicas of each worker."""
        for device, worker in enumerate(self.address):
            self.workers[worker] = (*self.workers.get(worker, ()), device)

    @property
    def hosts(self) -> list[int]:
        """The first replica of each host; hosts are addresses without port."""
        first: dict[str, int] = {}
        for device, worker in enumerate(self.address):
            first.setdefault(_host_of(worker), device)
        return list(first.values())

    @property
    def host_names(self) -> frozenset[str]:
        """The addresses of the hosts."""
        return frozenset(map(_host_of, self.workers))

    def buddy(self, device: int) -> str | None:
        """The worker that mirrors a replica: the home of the next replica on another worker."""
        count = len(self.address)
        following = (self.address[(device + step) % count] for step in range(1, count))
        return next((worker for worker in following if worker != self.address[device]), None)

    def among(self, living: Iterable[str]) -> HomeTable:
        """The table for other workers: each has neighbouring replicas again, and few of them move.

        Workers keep their order. New ones take the places of those that are gone, or come after
        the worker that has most replicas.

        Args:
            living: addresses, at least one.
        """
        there = set(living)
        order = [worker for worker in self.workers if worker in there]
        new = sorted(there - set(order))[: max(len(self.address) - len(order), 0)]
        for index, worker in enumerate(self.workers):
            if worker not in there and new:
                order.insert(index, new.pop(0))
        most = max(order, key=lambda worker: len(self.workers.get(worker, ())), default=None)
        at = 0 if most is None else order.index(most) + 1
        order[at:at] = new
        return HomeTable(place_replicas(len(self.address), order))

    def is_crowded(self, living: Sequence[str]) -> bool:
        """Whether there are so many workers that each could have fewer replicas."""
        least = -(-len(self.address) // max(len(living), 1))
        return max(map(len, self.workers.values())) > least


def _host_of(worker: str) -> str:
    return worker.rpartition(":")[0]
