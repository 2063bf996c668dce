"""Persistable variables of a run on a cluster: sent to workers, and back when somebody reads them.

State lives on the workers. The user's tensors know where their values are, and bring them when
they are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.core.places import CPUPlace

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.recovery import Recovery
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.compile.plan import Plan
    from dpexec.engine.compile.replicas import Replicas
    from dpexec.engine.feeds.splitting import Feeds

__all__ = ["Variables"]


class Variables:
    """The variables of the replicas, as the client sees them.

    Args:
        group: the replicas.
        recovery: reads again what was lost in between.
        replicas: the variables here.
    """

    def __init__(self, group: ReplicaGroup, recovery: Recovery, replicas: Replicas) -> None:
        self._group, self._recovery, self._replicas = group, recovery, replicas
        self._generation = -1  # of what the workers have taken last
        self._sources: dict[str, int] = {}  # whose values of a variable the user sees

    @property
    def taken(self) -> bool:
        """Whether the workers have what the user wrote."""
        return self._generation == self._replicas.generation

    def take(self, plans: Iterable[Plan]) -> None:
        """Send what the user wrote to those that use it.

        Args:
            plans: what reads it.
        """
        for plan in plans:
            self._push(plan)
        self._replicas.taken()
        self._generation, self._group.filled = self._replicas.generation, True

    def _push(self, plan: Plan) -> None:
        """Send persistable variables to the workers of devices that use them, and to mirrors.

        All that a worker takes is one task: what its replicas have in common is one array there.
        """
        group = self._group
        values: list[dict[str, Any]] = []
        for device, names in enumerate(plan.reads):
            tensors = {name: self._replicas.tensor(device, name) for name in names}
            self._sources.update((name, device) for name in names if name not in self._sources)
            values.append({name: t.numpy() for name, t in tensors.items() if t is not None})
        calls: list[tuple[str, tuple[Any, ...]]] = [
            (worker, (False, {device: values[device] for device in devices}))
            for worker, devices in group.homes.workers.items()
        ]
        for device, worker in group.mirrors:
            own = group.own[device]
            kept = {name: value for name, value in values[device].items() if name in own}
            calls.append((worker, (True, {device: kept})))
        group.call(cluster_state.store, calls, "to take values")

    def values(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """What every device has of variables that nobody wrote since; equal values travel once.

        The user's tensors are filled, as if they had been read.

        Args:
            names: of the variables.

        Raises:
            ClusterError: the values are lost.
        """
        replicas = self._replicas
        known = [name for name in names if name in self._sources and replicas.current(name)]
        values = self._recovery.read(lambda: self._values(known))
        for name in known:
            tensor = replicas.tensor(0, name)
            if tensor is not None and tensor._source is not None:
                tensor.array = np.array(values[self._sources[name]][name])
        return values

    def _values(self, names: Sequence[str]) -> list[dict[str, Any]]:
        address = self._group.homes.address
        digests = self._ask(cluster_state.digests, [names] * len(address))
        sources: dict[tuple[str, bytes], int] = {}
        for device, found in enumerate(digests):
            for value in found.items():
                sources.setdefault(value, device)
        wanted: list[list[str]] = [[] for _ in address]
        for (name, _), device in sources.items():
            wanted[device].append(name)
        loaded = self._ask(cluster_state.values, wanted)
        return [
            {name: loaded[sources[name, digest]][name] for name, digest in found.items()}
            for found in digests
        ]

    def _ask(self, function: Any, names: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        address = self._group.homes.address
        calls = [(address[device], (device, wanted)) for device, wanted in enumerate(names)]
        return self._group.call(function, calls, "to read variables")

    def defer(self, plan: Plan, feeds: Feeds) -> None:
        """Let the user's tensors come from the workers when they are read.

        Args:
            plan: what ran.
            feeds: what it was fed.
        """
        source: dict[str, int] = {}
        written = [*plan.overwritten, *plan.commits, *((0, name) for name in feeds.persistable)]
        for device, name in written:
            source[name] = min(device, source.get(name, device))
        self._sources.update(source)
        tensors = {name: self._replicas.scope.var(name).get_tensor() for name in source}
        for name, tensor in tensors.items():
            tensor.place = CPUPlace()
            # without what knows the scope, or tensor and scope would hold each other
            device = source[name]
            tensor.defer(functools.partial(_pull, self._group, self._recovery, device, name))
        self._replicas.touch(tensors)


def _pull(group: ReplicaGroup, recovery: Recovery, device: int, name: str) -> Any:
    """The value that a replica has of a variable."""

    def load() -> Any:
        calls = [(group.homes.address[device], (device, [name]))]
        return group.call(cluster_state.values, calls, f"to read {name}")[0][name]

    return np.array(recovery.read(load))
