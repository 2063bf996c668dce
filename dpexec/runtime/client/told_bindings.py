"""Bindings that the workers of a run know, and what they call them."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from dpexec.runtime.cluster import worker as cluster_worker
from dpexec.runtime.cluster.worker import BINDINGS_KEPT, BindingKey

if TYPE_CHECKING:
    from dpexec.runtime.binding import Binding
    from dpexec.runtime.client.replica_group import ReplicaGroup

__all__ = ["ToldBindings"]


class ToldBindings:
    """Tells workers of bindings, and forgets the oldest when these do.

    Args:
        group: the replicas.
    """

    def __init__(self, group: ReplicaGroup) -> None:
        self._group = group
        self._keys: OrderedDict[Binding, BindingKey] = OrderedDict()
        self._told: set[BindingKey] = set()
        self._count = 0

    def forget(self) -> None:
        """The workers know none any more; each is told again when it comes."""
        self._told.clear()

    def key(self, binding: Binding) -> BindingKey:
        """The name that the workers know a binding by; they are told of a new one.

        Args:
            binding: which.

        Raises:
            WorkerLostError: they do not answer.
        """
        if binding not in self._keys:
            self._keys[binding] = binding.plan.key, self._count
            self._count += 1
            if len(self._keys) > BINDINGS_KEPT:
                self._told.discard(self._keys.popitem(last=False)[1])
        key = self._keys[binding]
        if key not in self._told:
            calls = [(worker, (key, binding.specs)) for worker in self._group.homes.workers]
            self._group.call(cluster_worker.bind, calls, "to compile a plan")
            self._told.add(key)
        return key
