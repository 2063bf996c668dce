"""Plans and bindings of a program: made once, and cached while they are used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.check import check_fetch_names
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.parallel_do import busy_devices, count_rows, split_pre_fetched
from dpexec.engine.compile.plans.plan import Plan, PlanKey
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.core import flags
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.dispatch.binder import Binder
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.trace.between import new_shape, preparing

__all__ = ["BindingCache"]

_BINDINGS_KEPT = limit_of("bindings")
_OPERATORS_KEPT = limit_of("operators in bindings")


class BindingCache:
    """The plans and bindings of a program.

    Args:
        graph: the graph.
        compilation: the strategies and passes that made it.
        replicas: the persistable variables.
        here: whether code runs in this process, see :class:`Binder`.
    """

    def __init__(
        self,
        graph: SSAGraph,
        compilation: Compilation,
        replicas: Replicas,
        here: bool,
    ) -> None:
        self._graph = graph
        self._compilation = compilation
        self._replicas = replicas
        self._binder = Binder(graph, compilation, replicas, here)
        self._plans: LimitedCache[PlanKey, Plan] = LimitedCache(limit_of("plans"))
        self._kept: dict[Any, Binding] = {}
        self._rows: LimitedCache[Any, dict[int, int]] = LimitedCache(limit_of("rows of devices"))
        self._shapes: dict[str, tuple[int, ...]] = {}

    @property
    def kept(self) -> list[Binding]:
        """The bindings that are kept; the latest used is last."""
        return list(self._kept.values())

    @property
    def memory(self) -> Memory:
        """Where their values lie."""
        return self._binder.memory

    def with_inner(self, feeds: Feeds) -> Feeds:
        """The feeds of all devices, those of ParallelDos included.

        Args:
            feeds: of the devices that the program itself runs on.

        Raises:
            EnforceNotMet: the feed of a ParallelDo does not fit.
        """
        if not self._graph.bodies:
            return feeds
        feeds = split_pre_fetched(self._graph, feeds)
        key = (feeds.shapes, self._replicas.forms)
        if key not in self._rows:
            self._rows[key] = count_rows(self._graph, feeds, self._replicas)
        return replace(feeds, rows=self._rows[key])

    def of_each(
        self, batches: Iterable[Feeds], fetch: tuple[str, ...], merged: bool
    ) -> list[Binding]:
        """The bindings for the batches of a run, see :meth:`of`."""
        found: list[Binding] = []
        before: Feeds | None = None
        for feeds in batches:
            same = before and feeds.shapes is before.shapes and feeds.rows == before.rows
            found.append(found[-1] if same else self.of(feeds, fetch, merged))
            before = feeds
        return found

    def of(self, feeds: Feeds, fetch: tuple[str, ...], merged: bool) -> Binding:
        """The binding for a batch, after all checks that need no run.

        Args:
            feeds: arrays per device.
            fetch: names of variables to return.
            merged: the fetches of all devices are concatenated.

        Raises:
            EnforceNotMet: a value is missing, or names, shapes or types do not fit.
        """
        checked = bool(flags.current["FLAGS_check_nan_inf"])
        busy = busy_devices(self._graph, feeds.rows) if feeds.rows else ()
        plan_key = PlanKey(fetch, feeds.names, feeds.idle, checked, busy)
        plan = self._plans.get(plan_key) or self._make_plan(plan_key)
        self._replicas.sync(plan, plan.reads)
        key = (plan, feeds.shapes, merged, self._replicas.forms)
        binding = self._kept.get(key)
        if binding is None:
            with preparing():
                binding = self._binder.bind(plan, feeds, merged)
            self._note_shapes(binding, feeds)
        self._kept[key] = self._kept.pop(key, binding)  # the latest used is last
        if len(self._kept) > max(_BINDINGS_KEPT, _OPERATORS_KEPT // len(plan.nodes or [0])):
            del self._kept[next(iter(self._kept))]
        return binding

    def _note_shapes(self, binding: Binding, feeds: Feeds) -> None:
        """Note what has another shape than when it was noted last, so that traces can tell it.

        Bindings that leave numbers of rows open are made for many shapes, and cost little.
        """
        if binding.rows:
            return
        plan = binding.plan
        device = plan.active[0] if plan.active else 0
        found = {name: array.shape for name, array in feeds.values[device].items()}
        for name in plan.reads[device]:
            if (spec := self._replicas.spec(device, name)) is not None:
                found[name] = spec.shape
        for name, shape in found.items():
            if self._shapes.get(name, shape) != shape:
                new_shape(name, tuple(shape))
        self._shapes.update(found)

    def _make_plan(self, key: PlanKey) -> Plan:
        check_fetch_names(self._graph.program.global_block(), key.fetch)
        with preparing():
            plan = self._plans[key] = self._compilation.plan(self._graph, key)
        return plan
