"""Plans are bound to the shapes of batches: what is found out for one size serves many others.

When a second size of a batch comes, shapes and code are made once more with the number of rows
left open (:mod:`dpexec.ir.sizes`). For all sizes that agree with what was decided then, binding
is little more than writing new numbers into tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.core.memory import no_cycles_sought
from dpexec.core.places import CUDAPlace
from dpexec.graph.ssa import SSAGraph
from dpexec.ir.sizes import Rows, Size
from dpexec.ir.spec import Spec
from dpexec.runtime.binding import Binding, Memory
from dpexec.runtime.check import Rules, array_spec, check_merge, check_run
from dpexec.runtime.compilation import Compilation
from dpexec.runtime.feed import Feeds
from dpexec.runtime.plan import Plan
from dpexec.runtime.replicas import Replicas

__all__ = ["Binder"]

_FAMILIES_KEPT = 32
_MEMBERS_KEPT = 16

Specs = list[dict[str, Spec]]


class Binder:
    """Binds the plans of an engine.

    Args:
        graph: the graph.
        compilation: what it was made by.
        replicas: the persistable variables.
        opens: whether numbers of rows may be left open: code runs in this process.
    """

    def __init__(
        self, graph: SSAGraph, compilation: Compilation, replicas: Replicas, opens: bool
    ) -> None:
        self.memory = Memory()
        self._graph = graph
        self._compilation = compilation
        self._replicas = replicas
        on_gpus = any(isinstance(place, CUDAPlace) for place in graph.places)
        self._opens = opens and bool(compilation.native) and not graph.bodies and not on_gpus
        self._rules = Rules()
        self._families: dict[Any, _Family] = {}

    def bind(self, plan: Plan, feeds: Feeds, merged: bool) -> Binding:
        """What to run for a batch, if all that can be known before says that it will run.

        Args:
            plan: for its fetch list and devices.
            feeds: arrays per device.
            merged: the fetches of all devices are concatenated.

        Returns:
            The plan with its shapes.

        Raises:
            EnforceNotMet: a value is missing, or shapes or types do not fit.
        """
        fed = [{name: array_spec(array) for name, array in v.items()} for v in feeds.values]
        found = None
        if self._opens and not plan.checked:
            found = self._from_family(plan, fed, feeds.samples, merged)
        return found or self._binding(plan, self._specs(plan, fed, merged, self._rules))

    def _from_family(
        self, plan: Plan, fed: Specs, samples: Sequence[int], merged: bool
    ) -> Binding | None:
        """A binding that was made for an open number of rows; None if there is none for these."""
        forms = tuple(_form(specs, rows) for specs, rows in zip(fed, samples, strict=True))
        family = self._family((plan, merged, self._replicas.forms, forms))
        found = family.binding(samples)
        most = max(samples)
        if found is None and family.may_grow(most):
            family.members.append(self._opened(plan, fed, samples, merged, Rows.up_to(most)))
            found = family.binding(samples)
        family.seen = True
        return found

    def _family(self, key: Any) -> _Family:
        if key not in self._families:
            if len(self._families) >= _FAMILIES_KEPT:
                del self._families[next(iter(self._families))]
            self._families[key] = _Family()
        return self._families[key]

    def _specs(self, plan: Plan, fed: Specs, merged: bool, rules: Rules) -> Specs:
        specs = check_run(self._graph, plan.live, plan.missing, fed, self._replicas, rules)
        for name in plan.fetch if merged else ():
            check_merge(name, [specs[device].get(name) for device in plan.active])
        return specs

    def _binding(self, plan: Plan, specs: Specs) -> Binding:
        made_of = self._compilation
        return Binding(plan, specs, made_of.native, self.memory, made_of.halves)

    @no_cycles_sought()
    def _opened(
        self, plan: Plan, fed: Specs, samples: Sequence[int], merged: bool, rows: Rows
    ) -> _Member | None:
        """What is bound for all numbers of rows that behave alike; None if nothing can be."""
        try:
            given = [
                {name: _open(spec, count, rows) for name, spec in specs.items()}
                for specs, count in zip(fed, samples, strict=True)
            ]
            specs = self._specs(plan, given, merged, Rules())
            shared = (v for node in plan.live if node.is_collective for v in node.outputs)
            if any(_is_open(specs[v.device].get(v.name)) for v in shared):
                return None  # devices have different numbers of rows
            binding = self._binding(plan, specs)
            binding.make_code(rows)
            binding.closed([rows.example] * len(samples)).steps  # noqa: B018
        except Exception:  # somebody needed a number; the closed way says if something is wrong
            return None
        return _Member(rows, binding)


@dataclass(eq=False)
class _Member:
    """A binding with an open number of rows."""

    rows: Rows
    binding: Binding

    def closed(self, samples: Sequence[int]) -> Binding | None:
        """The binding for some rows on every device; None if it is not right for them."""
        if not all(count in self.rows for count in samples if count):
            return None
        made = self.binding.closed(samples)
        try:
            assert made.lates is not None
        except TypeError:  # a primitive needs more memory than those for other numbers of rows
            return None
        return made


class _Family:
    """Bindings for feeds that differ in their numbers of rows alone.

    Attributes:
        seen: whether such a feed came already.
        members: what was made for open numbers of rows; None: they cannot be left open.
    """

    def __init__(self) -> None:
        self.seen = False
        self.members: list[_Member | None] = []

    def may_grow(self, rows: int) -> bool:
        """Whether it is worth while to leave the number open: a second, unknown one has come."""
        known = any(member is None or rows in member.rows for member in self.members)
        return self.seen and not known and len(self.members) < _MEMBERS_KEPT

    def binding(self, samples: Sequence[int]) -> Binding | None:
        """A binding for some rows on every device, if there is one that is right for them."""
        tried = (member.closed(samples) for member in self.members if member is not None)
        return next((made for made in tried if made is not None), None)


def _form(specs: Mapping[str, Spec], rows: int) -> Any:
    """What remains of feeds without the number of rows."""
    return tuple(
        (name, spec.shape[1:] if spec.rank and spec.shape[0] == rows else (spec.shape,), spec.dtype)
        for name, spec in specs.items()
    )


def _open(spec: Spec, count: int, rows: Rows) -> Spec:
    if not spec.rank or spec.shape[0] != count:
        return spec
    size: Any = Size(rows)
    return spec.replace(shape=(size, *spec.shape[1:]))


def _is_open(spec: Spec | None) -> bool:
    return spec is not None and any(isinstance(size, Size) for size in spec.shape)
