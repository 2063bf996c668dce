"""Persistable variables of a run on a cluster: sent to workers, and fetched when they are read.

State lives on the workers. The user's tensors know where their values are, and fetch them when
they are read.
"""

from __future__ import annotations

import itertools
import operator
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpexec.engine.cluster.client.handover import Holder, RemoteValue, hand_over
from dpexec.engine.cluster.worker import state as cluster_state
from dpexec.engine.core import tensors
from dpexec.engine.core.copies import values_on
from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.errors import WorkerLostError
from dpexec.engine.core.places import CPUPlace
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor
from dpexec.engine.core.variable_values import hold
from dpexec.engine.run.fetch import host_copy

if TYPE_CHECKING:
    from dpexec.engine.cluster.client.step_outcome import BoundBatch
    from dpexec.engine.compile.bindings.binding import Binding
    from dpexec.engine.compile.plans.plan import Plan
    from dpexec.engine.compile.plans.replicas import Replicas, Stored
    from dpexec.engine.core.scope import ScopeVariable
    from dpexec.engine.ir.spec import Spec

__all__ = ["Variables"]

_value_of, _source_of = operator.attrgetter("value"), operator.attrgetter("source")
_LISTS = (VarType.LOD_TENSOR_ARRAY, VarType.LOD_RANK_TABLE)


class Variables:
    """The variables of the replicas, as the client sees them.

    Args:
        holder: the replicas, and how they are read.
        replicas: the user's variables in this process.
    """

    def __init__(self, holder: Holder, replicas: Replicas) -> None:
        self._holder, self._replicas = holder, replicas
        self._group, self._recovery = holder.group, holder.recovery
        self._generation = -1  # of the variables that were sent to workers last
        self._versions: dict[str, int] = {}  # of the values on the workers
        self._sources: dict[str, int] = {}  # the device whose value of a variable the user sees
        self._computed: set[str] = set()  # what workers have that was not in the user's scope
        self._lists: dict[str, int] = {}  # device of arrays and rank tables that runs wrote
        self._deferred: dict[str, Stored] = {}  # tensors that the latest run left to be fetched
        self._deferred_to: list[ScopeVariable] = []  # the variables that hold these tensors
        self._deferred_from: list[Any] = []  # their sources
        self._deferred_by: Any = None  # the run that did so; None: the next run must do it again
        self._moves = -1  # ``tensors.moves`` when all this was so
        others = [known for known in replicas.away_in if known() is not None]
        self._behind = bool(others)  # an engine that shares the variables may have written some
        replicas.away_in = [*others, weakref.ref(self)]

    def try_to_take(self, bindings: Collection[Binding]) -> bool:
        """Let workers take what engines on the same workers wrote, as far as they can.

        Args:
            bindings: the bindings that will run.

        Returns:
            Whether the workers have all variables that the user or another engine set. If not,
            :meth:`take` sends the rest.
        """
        if self._generation != self._replicas.generation or self._behind:
            self._hand_over(_plans(bindings))
        return self._generation == self._replicas.generation and not self._behind

    def set_anew(self) -> bool:
        """Whether the user's scope has all that workers have: the user has set what steps wrote."""
        return not any(self._has(name) for name in self._computed)

    def none_computed(self) -> bool:
        """Whether the user's scope has all that workers have, as steps write nothing."""
        return not self._computed

    def take(self, bindings: Iterable[Binding]) -> None:
        """Send variables that the user or another engine set to the workers that use them.

        Args:
            bindings: the bindings that will run.

        Raises:
            ClusterError: what another engine wrote is lost.
        """
        plans = _plans(bindings)
        if self._behind and not self._replicas.common:
            self._bring(itertools.chain(*(names for plan in plans for names in plan.reads)))
        self._behind = False
        if not self._group.filled:  # workers that took some may be lost since
            self._versions.clear()
        for plan in plans:
            self._push(plan)
        self._computed.update(self._replicas.taken())
        self._generation, self._group.filled = self._replicas.generation, True

    def forget(self) -> None:
        """Note that the workers have lost all values: they take them again."""
        self._versions.clear()
        self._generation, self._behind = -1, bool(self._others())

    def close(self) -> None:
        """Note that the workers keep nothing any more."""
        known = self._replicas.away_in
        self._replicas.away_in = [other for other in known if other() not in (None, self)]

    # ---- engines that share the variables: each has its own copies on the workers

    def _others(self) -> list[Variables]:
        found = (known() for known in self._replicas.away_in)
        return [other for other in found if other is not None and other is not self]

    def _tell_others(self) -> None:
        for other in self._others():
            other._behind = True

    def _bring(self, names: Iterable[str]) -> None:
        """Fetch what other engines wrote, every device's own value."""
        replicas = self._replicas
        wanted = {name for name in names if self._versions.get(name) != replicas.seen(name)}
        for other in self._others():
            known = [n for n in sorted(wanted) if other._versions.get(n) == replicas.seen(n)]
            if not known:
                continue
            self._restore(known, other.with_offsets(known))
            wanted.difference_update(known)

    def _restore(self, names: Iterable[str], found: Sequence[Mapping[str, Any]]) -> None:
        for name in names:
            own = {d: values[name] for d, values in enumerate(found) if name in values}
            if own:
                self._replicas.restore(name, own)

    def _hand_over(self, plans: Sequence[Plan]) -> None:
        """Let members take what other engines on their workers wrote, as far as they can."""
        replicas = self._replicas
        if not self._group.filled or any(scope.local_var_names() for scope in replicas.scopes[1:]):
            return  # devices have values of their own, which were restored
        reads = [
            set[str]().union(*(p.reads[d] for p in plans)) for d in range(len(replicas.places))
        ]
        lacking = self._lacking(reads)
        held = {name: replicas.tensor(0, name) for name in lacking}
        found = {name: None if tensor is None else tensor.source for name, tensor in held.items()}
        away = {name: source for name, source in found.items() if isinstance(source, RemoteValue)}
        if not away:
            return
        handed = hand_over(away, reads, self._holder, not replicas.common)
        try:
            self._group.keep(self._group.complete, filled=True)
        except WorkerLostError as lost:
            self._recovery.suspect(lost)
            return
        self._versions.update((name, lacking[name]) for name in handed)
        for device, names in enumerate(reads):
            self._sources.update((n, device) for n in names & handed if n not in self._sources)
        if len(handed) == len(lacking):
            self._generation, self._behind = replicas.generation, False

    def _lacking(self, reads: Iterable[Iterable[str]]) -> dict[str, int]:
        """The versions of the variables that devices read and workers lack."""
        seen = self._replicas.seen
        names = dict.fromkeys(itertools.chain(*reads))
        return {name: seen(name) for name in names if self._versions.get(name) != seen(name)}

    def bring_home(self, names: Iterable[str]) -> None:
        """Fetch every device's own values: a later run begins with them on whatever workers.

        Args:
            names: of variables.

        Raises:
            ClusterError: the values are lost.
        """
        names = list(names)
        found = self.with_offsets(names)
        if not self._replicas.common:
            self._restore(names, found)

    def _push(self, plan: Plan) -> None:
        """Send variables that the user set to the workers of devices that use them, and to mirrors.

        Variables that were not set stay as they are; replicas may have different values of them.
        """
        group, replicas = self._group, self._replicas
        written = self._lacking(plan.reads)
        values: list[dict[str, Any]] = []
        for device, names in enumerate(plan.reads):
            self._sources.update((name, device) for name in names if name not in self._sources)
            found = {n: replicas.value(device, n) for n in names if n in written}
            known = {name: value for name, value in found.items() if value is not None}
            values.append(values_on(CPUPlace(), known))
        if written or not group.filled:
            self._holder.store(values)
            group.keep(group.complete, filled=True)
        self._versions.update(written)

    def values(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Every device's values of variables that the user has not set since; equal ones come once.

        They come from the engine that has them, this one or one that shares the variables. The
        user's variables are filled, as if they had been read.

        Args:
            names: names of the variables.

        Raises:
            ClusterError: the values are lost.
        """
        wanted = list(names)
        found: list[dict[str, Any]] = [{} for _ in self._replicas.places]
        for keeper in (self, *self._others()):
            known = [name for name in wanted if keeper._has(name)]
            wanted = [name for name in wanted if not keeper._has(name)]
            for mine, values in zip(found, keeper._own_values(known), strict=True):
                mine.update(values)
        return found

    def with_offsets(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Like :meth:`values`; arrays that hold sequences come with their offsets."""
        lod, found = self._replicas.lod, self.values(names)
        return [
            {
                name: (value, lod(device, name)) if lod(device, name) else value
                for name, value in mine.items()
            }
            for device, mine in enumerate(found)
        ]

    def _has(self, name: str) -> bool:
        """Whether the workers have what the user, or an engine, last wrote."""
        replicas, known = self._replicas, name in self._sources
        return known and replicas.current(name) and self._versions.get(name) == replicas.seen(name)

    def _own_values(self, known: Sequence[str]) -> list[dict[str, Any]]:
        """Like :meth:`values`, of variables that this engine's workers have."""
        replicas = self._replicas
        if not known:
            return [{} for _ in replicas.places]
        values = self._recovery.read(lambda: self._values(known))
        for name in known:
            held = replicas.stored(0, name)
            if held is not None and held.is_deferred:
                var = replicas.scope.find_var(name) or replicas.scope.var(name)
                hold(var, CPUPlace(), host_copy(values[self._sources[name]][name]))
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

    def defer(self, steps: Iterable[BoundBatch]) -> None:
        """Let the user's variables be fetched from the workers when they are read.

        Args:
            steps: the steps that ran.
        """
        for binding, fed in dict.fromkeys([(b, feeds.persistable) for b, feeds in steps]):
            self.defer_of(binding, fed)

    def defer_of(self, binding: Binding, fed: Collection[str]) -> None:
        """:meth:`defer` for the steps of a binding.

        Args:
            binding: the binding.
            fed: names of persistable variables that they were fed.
        """
        same = self._deferred_by == _what_is_deferred(binding, fed)
        written, known = self._deferred, self._deferred_to
        same = same and all(map(operator.is_, map(_value_of, known), written.values()))
        if same:  # first, as a thread that is reading one stores its value if it is not touched
            now = self._replicas.touch(written)
            moves = tensors.moves
            if self._moves != moves:  # as when another run has left its own to be fetched
                sources = map(_source_of, written.values())
                same, self._moves = all(map(operator.is_, sources, self._deferred_from)), moves
        if not same:
            self._defer(binding, fed)
            now = self._replicas.touch(self._deferred)
        self._versions.update(dict.fromkeys(self._deferred, now))
        if len(self._replicas.away_in) > 1:
            self._tell_others()

    def _defer(self, binding: Binding, fed: Collection[str]) -> None:
        source: dict[str, int] = {}
        plan = binding.plan
        written = [*plan.overwritten, *plan.commits, *((0, name) for name in fed)]
        for device, name in written:
            source[name] = min(device, source.get(name, device))
        self._sources.update(source)
        self._computed.update(source)
        kinds = {name: _kind(binding, device, name) for name, device in source.items()}
        self._lists.update((n, d) for n, d in source.items() if kinds[n] in _LISTS)
        dense = {n: d for n, d in source.items() if n not in self._lists}
        self._deferred_to = [self._replicas.scope.var(name) for name in dense]
        found = zip(self._deferred_to, dense.items(), strict=True)
        self._deferred = {
            n: self._deferred_one(var, n, d, kinds[n], binding.specs[d].get(n))
            for var, (n, d) in found
        }
        for name in self._deferred:
            made = {d: found[name] for d, found in enumerate(binding.specs) if name in found}
            self._replicas.keep_specs(name, made)
        tells = {*kinds.values()} <= {VarType.LOD_TENSOR}  # only these count changes in ``moves``
        home = binding.opened or binding
        alike = not any(
            found[name].is_open for found in home.specs for name in kinds if name in found
        )
        self._deferred_by = _what_is_deferred(binding, fed) if tells and alike else None
        self._deferred_from = [*map(_source_of, self._deferred.values())] if tells else []
        self._moves = tensors.moves

    def _deferred_one(
        self, var: ScopeVariable, name: str, device: int, kind: VarType, spec: Spec | None
    ) -> Stored:
        """The tensor of a user's variable, whose value is still to be fetched."""
        source = RemoteValue(self._holder, device, name)
        if kind == VarType.SELECTED_ROWS:
            var.value = var.value if isinstance(var.value, SelectedRows) else None
            rows = var.get_selected_rows()
            rows.defer(source, CPUPlace())
            return rows
        var.value = var.value if isinstance(var.value, LoDTensor) else None
        tensor = var.get_tensor()
        tensor.defer(source, CPUPlace(), _form(spec))
        return tensor

    def bring_lists(self) -> None:
        """Fetch arrays of tensors and rank tables that steps wrote: lists cannot be deferred.

        Raises:
            ClusterError: they are lost.
        """
        if not self._lists:
            return
        scope, wanted = self._replicas.scope, dict[int, list[str]]()
        for name, device in self._lists.items():
            wanted.setdefault(device, []).append(name)
        found = self._holder.pull(wanted)
        for name, device in self._lists.items():
            value = found[device].get(name)
            if value is not None:
                hold(scope.find_var(name) or scope.var(name), CPUPlace(), value)
        self._replicas.listed(self._lists)
        self._versions.update((name, self._replicas.seen(name)) for name in self._lists)
        self._lists.clear()
        self._tell_others()


def _plans(bindings: Iterable[Binding]) -> list[Plan]:
    return [*dict.fromkeys(binding.plan for binding in bindings)]


def _what_is_deferred(binding: Binding, fed: Collection[str]) -> tuple[Any, ...]:
    """What is equal for bindings whose runs leave the same variables, of the same forms."""
    home = binding.opened or binding
    return binding.plan, fed, home if fed else home.stored


def _kind(binding: Binding, device: int, name: str) -> VarType:
    """The type of a variable's value after a run."""
    spec = binding.specs[device].get(name)
    declared = binding.plan.graph.program.global_block().vars[name]
    return declared.type if spec is None else spec.kind


def _form(spec: Spec | None) -> Any:
    """The form of a deferred tensor; None if only its value tells."""
    if spec is None or spec.is_open or spec.size < 0:
        return None
    return spec.shape, to_numpy(spec.dtype)
