"""Binds plans to the shapes of batches; one binding can serve many batch sizes.

When a second size of a batch comes, shapes and code are made once more with the numbers of rows
left open (:mod:`dpexec.engine.ir.sizes`). For all sizes that agree with what was decided then,
binding is little more than writing new numbers into tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.compile.bindings.binding import Binding
from dpexec.engine.compile.plans.check import Rules, check_merge, check_run
from dpexec.engine.compile.plans.compilation import Compilation
from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.compile.plans.replicas import Replicas
from dpexec.engine.compile.regions.memory import Memory
from dpexec.engine.core.cache import LimitedCache, limit_of
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.memory import no_cycles_sought
from dpexec.engine.core.places import on_gpus
from dpexec.engine.core.scope import Scope
from dpexec.engine.feeds.splitting import Feeds
from dpexec.engine.graph.ssa import SSAGraph
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows
from dpexec.engine.ir.spec import Spec, array_spec
from dpexec.engine.kernels.values import Packed

__all__ = ["Binder"]

_MEMBERS_KEPT = limit_of("bindings with plain sizes")


Specs = list[dict[str, Spec]]


class Binder:
    """Binds the plans of an engine.

    Args:
        graph: the graph.
        compilation: the strategies and passes that made it.
        replicas: the persistable variables.
        here: whether code runs in this process, and not on workers alone.
    """

    def __init__(
        self,
        graph: SSAGraph,
        compilation: Compilation,
        replicas: Replicas,
        here: bool,
    ) -> None:
        self.memory = Memory()
        self._graph = graph
        self._compilation = compilation
        self._replicas = replicas
        on_cpus = not on_gpus(graph.places)
        self._here = here
        self._opens = bool(compilation.native) and not graph.bodies and on_cpus
        self._rules = Rules()
        self._packed = _packed(graph, compilation, replicas.scope)
        self._families: LimitedCache[Any, _Family] = LimitedCache(limit_of("families of bindings"))

    def bind(self, plan: Plan, feeds: Feeds, merged: bool) -> Binding:
        """Bind a plan to a batch, after all checks that need no run.

        Args:
            plan: for its fetch list and devices.
            feeds: arrays per device.
            merged: the fetches of all devices are concatenated.

        Returns:
            The plan with its shapes.

        Raises:
            EnforceNotMet: a value is missing, or shapes or types do not fit.
        """
        found = None
        if self._opens and not plan.checked:
            found = self._from_family(plan, feeds, merged)
        return found or self._binding(plan, self._specs(plan, _specs(feeds), merged, self._rules))

    def _from_family(self, plan: Plan, feeds: Feeds, merged: bool) -> Binding | None:
        """A binding with open numbers of rows that is right for these; None if there is none."""
        family = self._family((plan, merged, self._replicas.forms, feeds.form))
        counts = feeds.extents.counts
        found = family.binding(counts)
        example = None if found else family.lacks(counts)
        family.note(counts)
        if example is not None:
            rows = Rows.about(example, family.largest)
            family.members.append(self._opened(plan, feeds, merged, rows))
            found = family.binding(counts)
        return found

    def _family(self, key: Any) -> _Family:
        if key not in self._families:
            self._families[key] = _Family()
        return self._families[key]

    def _specs(self, plan: Plan, fed: Specs, merged: bool, rules: Rules) -> Specs:
        changing: list[set[str]] = [set() for _ in fed]
        specs = check_run(
            self._graph, plan.live, plan.missing, fed, self._replicas, rules, changing
        )
        for name, held in zip(plan.fetch, plan.sources, strict=True) if merged else ():
            check_merge(name, [specs[device].get(name) for device in held])
        for own, names in zip(specs, changing, strict=True):  # by its name alone none is known
            own.update((name, own[name].replace(shape=(-1,))) for name in names)
        return specs

    def _binding(self, plan: Plan, specs: Specs) -> Binding:
        made_of = self._compilation
        return Binding(plan, specs, made_of.native, self.memory, made_of.halves, self._packed)

    @no_cycles_sought()
    def _opened(self, plan: Plan, feeds: Feeds, merged: bool, rows: Rows) -> _Member | None:
        """A binding for all numbers of rows that behave alike; None if there can be none."""
        try:
            specs = self._open_specs(plan, feeds, merged, rows)
            shared = (v for node in plan.live if node.is_collective for v in node.outputs)
            if any(v.name in specs[v.device] and specs[v.device][v.name].is_open for v in shared):
                return None  # devices have different numbers of rows
            binding = self._binding(plan, specs)
            binding.make_code()
            first = binding.closed([rows.example] * len(specs))
            if self._here:
                _ = first.steps
        except NeedsNumber:
            return None
        return _Member(rows, binding, first)

    def _open_specs(self, plan: Plan, feeds: Feeds, merged: bool, rows: Rows) -> Specs:
        """The specs of a run with open numbers of rows.

        Raises:
            EnforceNotMet: a value is missing, or shapes or types do not fit.
            RuntimeError: a shape rule fails for open numbers alone, which is a mistake in the rule.
        """
        fed, axes = _specs(feeds), feeds.extents.axes
        given = [
            {name: _open(spec, axes.get(name, ()), rows) for name, spec in specs.items()}
            for specs in fed
        ]
        try:
            return self._specs(plan, given, merged, Rules())
        except EnforceNotMet as error:
            self._specs(plan, fed, merged, Rules())  # says what is wrong in numbers
            raise RuntimeError("shape rules take numbers of rows, but not open ones") from error


def _packed(graph: SSAGraph, compilation: Compilation, scope: Scope) -> Packed | None:
    """The variables of a loaded model, which nobody changes; None: there are none."""
    program = graph.program
    if not program._predictor_threads or len(graph.places) > 1 or not compilation.native:
        return None
    block = program.global_block()
    made = {name for op in block.ops for name in op.output_arg_names}
    names = {var.name for var in block.vars.values() if var.persistable} - made
    found = {name: scope.find_var(name) for name in names}
    kept = {name: {} if var is None else var.packed for name, var in found.items()}
    return Packed(kept, program._predictor_threads)


@dataclass(eq=False)
class _Member:
    """A binding with open numbers of rows.

    Args:
        rows: the numbers.
        binding: leaves them open.
        first: for a batch that has the example's numbers of rows on every device.
    """

    rows: Rows
    binding: Binding
    first: Binding

    def closed(self, counts: Sequence[Counts]) -> Binding | None:
        """The binding for some rows on every device; None if it is not right for them."""
        for count in counts:
            if any(count) and count not in self.rows:
                return None
        if counts == self.first.rows:
            return self.first
        try:
            return self.binding.closed(counts)
        except NeedsNumber:  # a primitive needs more memory than those for other numbers of rows
            return None


class _Family:
    """Bindings for feeds that differ in their numbers of rows alone.

    Attributes:
        largest: numbers of rows of a device so far; (): such a feed did not come yet.
        members: what was made for open numbers of rows; None: they cannot be left open.
    """

    def __init__(self) -> None:
        self.largest: Counts = ()
        self.members: list[_Member | None] = []

    def lacks(self, counts: Sequence[Counts]) -> Counts | None:
        """The numbers of rows to make an open binding for: those of a second, unknown batch size.

        Args:
            counts: of every device.

        Returns:
            The largest ones that no member is right for; None: there are none, or no more room.
        """
        if not self.largest or None in self.members or len(self.members) >= _MEMBERS_KEPT:
            return None
        unknown = [
            c for c in counts if not any(m is not None and c in m.rows for m in self.members)
        ]
        return max(unknown, key=sum, default=None)

    def note(self, counts: Sequence[Counts]) -> None:
        """Note the numbers of rows of a batch on every device."""
        self.largest = tuple(map(max, *counts, self.largest or counts[0]))

    def binding(self, counts: Sequence[Counts]) -> Binding | None:
        """A binding for some rows on every device, if there is one that is right for them."""
        for member in self.members:
            made = None if member is None else member.closed(counts)
            if made is not None:
                return made
        return None


def _specs(feeds: Feeds) -> Specs:
    return [{name: array_spec(array) for name, array in v.items()} for v in feeds.values]


def _open(spec: Spec, axes: Sequence[int], rows: Rows) -> Spec:
    """The spec of an array whose first dimension is open, or that of offsets of sequences."""
    more = int(spec.kind == VarType.RAW)  # of n sequences there are n + 1 offsets
    sizes: list[Any] = [rows.size(axis) + more for axis in axes]
    return spec.replace(shape=(*sizes, *spec.shape[len(sizes) :]))
