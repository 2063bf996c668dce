"""Bindings that the workers of a run know, and what they call them.

The client alone decides which ones are kept: whenever it tells of a binding, it also says which
others stay. A list of its own on each worker would part from this one, as workers that join learn
of bindings in another order.
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

"""How many bindings of a run are remembered; more only if the steps of one run need more."""

_REHEARSED = 4
"""How many workers load before replicas move to them; the rest they load when a step needs it."""


class News(NamedTuple):
    """What workers are told before some steps.

    Args:
        keys: the names that the steps have for their bindings.
        new: bindings that the workers do not know yet.
        kept: if there are some, numbers of all that they are to keep.
        bindings: those of the steps.
    """

    keys: Sequence[BindingKey]
    new: Sequence[NewBinding]
    kept: Collection[int]
    bindings: Collection[Binding]

    @property
    def told(self) -> tuple[Sequence[NewBinding], Collection[int]]:
        """What :meth:`WorkerReplicas.bind` takes."""
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
        """The bindings that were used last."""
        found = itertools.islice(reversed(self._numbers), _REHEARSED)
        return [NewBinding(b.plan.key, self._numbers[b], b.given) for b in found]

    def forget(self) -> None:
        """Some workers may know none any more; each is told again when it comes."""
        self._told.clear()

    def news(self, bindings: Sequence[Binding]) -> News:
        """What the workers are to be told before some steps, and how these name their bindings.

        Numbers of rows that a binding left open are part of the name: it is told of once.

        Args:
            bindings: what the next steps run.
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
        """Tell the workers by tasks; returns what is left to tell: nothing.

        Raises:
            WorkerLostError: they do not answer.
        """
        if news.new:
            calls = [(worker, news.told) for worker in self._group.homes.workers]
            self._group.call(cluster_worker.bind, calls, "to compile a plan")
            self.note(news)
        return news._replace(new=(), kept=frozenset())

    def note(self, news: News) -> None:
        """The workers have been told."""
        self._told.update(news.bindings)


def _latest(registry: weakref.ref[BindingRegistry]) -> Callable[[], list[NewBinding]]:
    """The same, for whom the registry itself knows."""

    def latest() -> list[NewBinding]:
        known = registry()
        return [] if known is None else known.latest()

    return latest
