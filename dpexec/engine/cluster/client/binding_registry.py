"""The bindings that the workers of a run know, and their numbers.

Only the client decides which bindings are kept: when it sends workers a new binding, it also names
the bindings that stay. If each worker decided for itself, the lists of workers would differ, since
a worker that joins later gets bindings in another order.
"""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dpexec.engine.cluster.messages import BindingKey, NewBinding
from dpexec.engine.cluster.worker import worker as cluster_worker
from dpexec.engine.core.cache import limit_of

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.replica_group import ReplicaGroup
    from dpexec.engine.compile.bindings.binding import Binding

__all__ = ["BindingRegistry", "News"]

_REHEARSED = 4
"""How many bindings a worker loads before replicas move to it; it loads others when needed."""


class News(NamedTuple):
    """What workers are told before some steps.

    Args:
        keys: the names of the steps' bindings.
        new: bindings that the workers do not know yet.
        kept: if there are new ones, the numbers of all bindings that workers keep.
        bindings: the bindings of the steps.
    """

    keys: Sequence[BindingKey]
    new: Sequence[NewBinding]
    kept: Collection[int]
    bindings: Collection[Binding]

    @property
    def told(self) -> tuple[Sequence[NewBinding], Collection[int]]:
        """The arguments of :meth:`WorkerReplicas.bind`."""
        return self.new, self.kept


class BindingRegistry:
    """Tells workers of bindings, and which ones to forget.

    Args:
        group: the replicas.
    """

    def __init__(self, group: ReplicaGroup) -> None:
        self._group = group
        self._numbers: OrderedDict[Binding, int] = OrderedDict()  # the latest used is last
        self._told: set[Binding] = set()
        self._count = 0
        group.latest = _latest(weakref.ref(self))

    def latest(self) -> list[NewBinding]:
        """The bindings that were used last, the latest first."""
        found = itertools.islice(reversed(self._numbers), _REHEARSED)
        return [NewBinding(b.plan.key, self._numbers[b], b.given) for b in found]

    def forget(self) -> None:
        """Tell workers of each binding again, as some workers may know none any more."""
        self._told.clear()

    def knows(self, binding: Binding, number: int) -> bool:
        """Whether workers know a binding by a number; it counts as used now."""
        home = binding.opened or binding
        if home not in self._told or self._numbers[home] != number:
            return False
        self._numbers.move_to_end(home)
        return True

    def news(self, bindings: Sequence[Binding]) -> News:
        """What the workers must be told before some steps, and the names of the steps' bindings.

        Open numbers of rows are part of the name, so workers are told of such a binding once.

        Args:
            bindings: the bindings of the next steps.
        """
        if len(bindings) == 1:  # as in most runs
            (one,) = bindings
            home = one.opened or one
            if home in self._told:
                self._numbers.move_to_end(home)
                key = BindingKey(one.plan.key, self._numbers[home], tuple(one.rows))
                return News((key,), (), frozenset(), (home,))
        needed = dict.fromkeys(binding.opened or binding for binding in bindings)
        for binding in needed:
            if binding not in self._numbers:
                self._numbers[binding] = self._count
                self._count += 1
            self._numbers.move_to_end(binding)
        while len(self._numbers) > max(limit_of("bindings on workers"), len(needed)):
            self._told.discard(self._numbers.popitem(last=False)[0])
        new = [
            NewBinding(binding.plan.key, self._numbers[binding], binding.given)
            for binding in needed
            if binding not in self._told
        ]
        keys = [
            BindingKey(b.plan.key, self._numbers[b.opened or b], tuple(b.rows)) for b in bindings
        ]
        return News(keys, new, frozenset(self._numbers.values() if new else ()), needed)

    def tell(self, news: News) -> News:
        """Tell the workers by dask tasks; returns the same without anything left to tell.

        Raises:
            WorkerLostError: workers do not answer.
        """
        if news.new:
            calls = [(worker, news.told) for worker in self._group.homes.workers]
            self._group.call(cluster_worker.bind, calls, "to compile a plan")
            self.note(news)
        return news._replace(new=(), kept=frozenset())

    def note(self, news: News) -> None:
        """Note that the workers have been told."""
        self._told.update(news.bindings)


def _latest(registry: weakref.ref[BindingRegistry]) -> Callable[[], list[NewBinding]]:
    """:meth:`BindingRegistry.latest`, with a weak reference only: the group knows it."""

    def latest() -> list[NewBinding]:
        known = registry()
        return [] if known is None else known.latest()

    return latest
