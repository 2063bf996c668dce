"""The persistable variables of all devices, and how they stay equal.

Device 0 uses the user's scope itself; every other device has a child of it. In Reduce mode on
CPUs the children hold no copies, so look-ups reach the user's scope: parameters and optimizer
state exist once. Otherwise each device has its own copy, made when it is first needed and made
again when somebody else (``tensor.set``, a startup program, a loader) wrote the original.
"""

from __future__ import annotations

import functools
import operator
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core import tensors
from dpexec.engine.core.copies import copy_on, with_arrays
from dpexec.engine.core.dtypes import VarType, as_var_type, to_numpy
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import NO_SEQUENCES, Lod, LoDRankTable
from dpexec.engine.core.memory import count_memory
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.core.scope import Scope
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray
from dpexec.engine.core.variable_values import bring_together, content, hold, with_sequences
from dpexec.engine.ir.spec import Spec, array_spec

__all__ = ["Replicas", "Stored"]

Stored = LoDTensor | SelectedRows
"""Objects that hold the value of a persistable variable."""


class Replicas:
    """Where each device keeps its persistable variables.

    Args:
        scope: the user's scope.
        places: the devices.
        shared: whether all devices have the values that the user's scope has.
        away: whether devices are replicas on a cluster, where their values lie.
    """

    def __init__(
        self, scope: Scope, places: Sequence[Place], shared: bool, away: bool = False
    ) -> None:
        self.scope = scope
        self.places = list(places)
        self.common = shared or len(self.places) == 1
        """Whether no device has values of its own."""
        self.shared, self.away = self.common or away, away
        self.scopes = [scope, *(Scope(scope) for _ in self.places[1:])]
        self.generation = 0
        """Grows whenever values from outside were taken over."""
        self.forms = 0
        """Grows whenever such values had other shapes or types than before."""
        self._form: dict[str, Any] = {}
        self._seen: dict[str, int] = {}
        self._clock, self._readers = -1, weakref.WeakSet[object]()
        self._lists: dict[str, _ListSeen] = {}
        self.away_in: list[weakref.ref[Any]] = []
        """Who keeps values on a cluster, each for one of the engines that share these."""
        self.busy = threading.RLock()
        """Held by whoever works with the values on workers."""
        # of values on a cluster, by device:
        self._lods: dict[str, dict[int, Lod]] = {}
        self._specs: dict[str, dict[int, Spec]] = {}

    def stored(self, device: int, name: str) -> Stored | None:
        """The object that holds a persistable variable on a device; None if it has no value."""
        var = self.scopes[device].find_var(name)
        if var is None or not isinstance(var.value, Stored):
            return None
        return var.value if var.value._is_initialized() else None

    def tensor(self, device: int, name: str) -> LoDTensor | None:
        """The tensor of a persistable variable on a device; None if it has no value, or rows."""
        found = self.stored(device, name)
        return found if isinstance(found, LoDTensor) else None

    def value(self, device: int, name: str) -> Any:
        """The value of a persistable variable for a run on a device; None if it has none."""
        return content(self.scopes[device].find_var(name))

    def lod(self, device: int, name: str) -> Lod:
        """The offsets of the sequences in a persistable variable on a device.

        Raises:
            EnforceNotMet: the value does not have as many rows.
        """
        if not self.current(name):
            device = 0
        elif device in self._lods.get(name, ()):
            return self._lods[name][device]
        found = self.tensor(device, name)
        if found is None or not found._lod:
            return NO_SEQUENCES
        lod = Lod(found._lod)
        try:
            lod.check((found.shape() or [1])[0])
        except EnforceNotMet as error:
            raise EnforceNotMet(f"persistable variable {name} in the scope: {error}") from None
        return lod

    def keep_lod(self, device: int, name: str, lod: Lod) -> None:
        """Store the offsets of what a device was just fed for a persistable variable, or made."""
        if self.away:
            self._lods.setdefault(name, {})[device] = lod
        found = self.stored(device, name)
        if isinstance(found, LoDTensor) and not (device and self.shared):
            found._lod = lod.to_lists()

    def spec(self, device: int, name: str) -> Spec | None:
        """Shape and type of a persistable variable on a device; None without one value."""
        known = self._specs.get(name, {})
        if device in known and self.current(name):
            return known[device]
        device = 0 if self.shared else device
        held = self.tensor(device, name)
        if held is not None and held.is_deferred and held.form is not None:
            return Spec(held.form[0], as_var_type(held.form[1]))  # without fetching the value
        value = None if self._list(name) is not None else self.value(device, name)
        return None if value is None else array_spec(value)

    def keep_specs(self, name: str, made: Mapping[int, Spec]) -> None:
        """Note what shape and type devices on a cluster have of a variable since a run.

        Args:
            name: of the variable.
            made: by device; others have what they had before.
        """
        before, form = self._specs.get(name, {}), self._form.get(name)
        for device, spec in made.items():
            known = _form_of(before[device]) if device in before else form
            self.forms += known != _form_of(spec)
        self._specs[name] = {**before, **made}

    def in_sync(self, reader: object) -> bool:
        """Whether a reader has up-to-date copies of what it reads."""
        known = self._clock == tensors.last_write and reader in self._readers
        lists = self._lists
        return known and (not lists or all(lists[n].is_of(self._list(n)) for n in lists))

    def sync(self, reader: object, names: Sequence[Iterable[str]]) -> None:
        """Give every device up-to-date copies.

        Args:
            reader: identifies the caller; a call by a known reader costs nothing if nothing
                changed.
            names: per device, the persistable variables that it reads.
        """
        if self.in_sync(reader):
            return
        for name in list(self._lists):
            self._version(name)  # tells the time, as if those who write to them had done it
        if self._clock != tensors.last_write:
            self._readers.clear()  # others may read something else that was written
        self._readers.add(reader)
        read = set[str]().union(*names)
        if not self.away:
            bring_together(self.scope, read)
        for device, needed in enumerate(names):
            for name in needed:
                self._sync_one(device, name)
        for name in read:
            version = self._version(name)
            if self._seen.get(name) != version:
                self.generation += 1
                self._seen[name] = version
                self._look_at(name)
        self._clock = tensors.last_write

    def seen(self, name: str) -> int:
        """The version of a variable that devices have; it grows with every write."""
        return self._seen.get(name, -1)

    def _version(self, name: str) -> int:
        """The version of a variable in the user's scope; -1 if it has no value."""
        found = self.stored(0, name)
        if found is not None:
            return found.version
        held = self._list(name)
        if held is None:
            self._lists.pop(name, None)
            return -1
        if name not in self._lists or not self._lists[name].is_of(held):
            self._lists[name] = _ListSeen(held, tensors.tick())
        return self._lists[name].version

    def _list(self, name: str) -> LoDTensorArray | LoDRankTable | None:
        """An array of tensors or a rank table in the user's scope; None if it is none of these."""
        var = self.scope.find_var(name)
        held = None if var is None else var.value
        return held if isinstance(held, LoDTensorArray | LoDRankTable) else None

    def _look_at(self, name: str) -> None:
        """Note the form of a variable that was written, of which devices now have the same."""
        self._lods.pop(name, None)
        self._specs.pop(name, None)
        found = self.stored(0, name)
        form = type(self._list(name)) if found is None and name in self._lists else None
        form = form if found is None else found.form
        if form is None or form != self._form.get(name):
            self.forms += 1
        self._form[name] = form

    def _sync_one(self, device: int, name: str) -> None:
        version, original = self._version(name), self.stored(0, name)
        if version < 0:
            return
        place = self.places[device]
        if device == 0:
            if isinstance(place, CUDAPlace) and original is not None and original.place != place:
                holder = self.scope.find_var(name)
                assert holder is not None  # it has a value
                hold(holder, place, _copied(place, self.value(0, name)))
            return
        if self.shared:
            if self._seen.get(name) != version and name in self.scopes[device]._vars:
                self.scopes[device].erase([name])  # restored, and overwritten before a run
            return
        mine = self.scopes[device]._vars.get(name)
        if mine is None or self._seen.get(name) != version:
            holder = self.scopes[device].var(name)
            hold(holder, place, _copied(place, self.value(0, name)))
            if isinstance(original, LoDTensor):
                holder.get_tensor()._lod = original._lod

    # ---- values that replicas do not have in common

    def current(self, name: str) -> bool:
        """Whether devices have seen what was last written to a variable from outside."""
        version = self._version(name)
        return version >= 0 and self._seen.get(name) == version

    def own_values(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Values that differ between devices, per device; the first one's are in the scope.

        Arrays that hold sequences come with their offsets, see :func:`with_sequences`.
        """
        known = [name for name in names if self.current(name)]
        return [
            {},
            *(
                {name: with_sequences(scope._vars[name]) for name in known if name in scope._vars}
                for scope in self.scopes[1:]
            ),
        ]

    def restore(self, name: str, own: Mapping[int, Any]) -> None:
        """Give devices values of their own of a variable that was just written.

        They last until the variable is written again; workers of a cluster take them at the next
        run.

        Args:
            name: name of the variable; devices that are not in ``own`` take the written value.
            own: the values by device, see :func:`with_sequences`.
        """
        version = self._version(name)
        if version < 0:
            raise AssertionError(f"variable {name} has no value")
        original = with_sequences(self.scope.find_var(name))
        for device, place in enumerate(self.places[1:], 1):
            value = own.get(device, original)
            array, lod = value if isinstance(value, tuple) else (value, NO_SEQUENCES)
            var = self.scopes[device].var(name)
            hold(var, place, with_arrays(array, functools.partial(copy_on, place)))
            if isinstance(var.value, LoDTensor):
                var.value._lod = lod.to_lists()
        self.generation += 1
        self._seen[name] = version
        self._look_at(name)

    def taken(self) -> set[str]:
        """Note that the workers of a cluster have what was restored; gives its names."""
        names = set()
        for device, scope in enumerate(self.scopes[1:], 1):
            for name, var in scope._vars.items():
                if isinstance(var.value, LoDTensor) and var.value._lod:
                    self._lods.setdefault(name, {})[device] = Lod(var.value._lod)
            names.update(scope.local_var_names())
            scope.erase(scope.local_var_names())
        return names

    # ---- results of runs

    def commit(self, device: int, name: str, value: Any) -> None:
        """Store what a run computed for a persistable variable.

        Args:
            device: number of the device.
            name: name of the variable.
            value: the array itself, not a copy.
        """
        if self.shared or device == 0:
            var = self.scope.find_var(name) or self.scope.var(name)
        else:
            var = self.scopes[device].var(name)
        before = _form(var.value)
        hold(var, self.places[device], value)
        if _form(var.value) != before:
            self.forms += 1

    def store(self, device: int, name: str, value: Any) -> None:
        """Like :meth:`commit` with a copy of the value, in the array that is there if it fits."""
        tensor = self.tensor(device, name)
        array = None if tensor is None else tensor.array
        if isinstance(array, np.ndarray) and (array.shape, array.dtype) == _kind(value):
            array[...] = value
        else:
            self.commit(device, name, value.copy())

    def written(self, names: Iterable[str]) -> None:
        """Tell other runtimes on the same scope that these variables changed."""
        found = {name: self.stored(0, name) for name in names}
        self.touch({name: stored for name, stored in found.items() if stored is not None})
        self.listed(name for name, stored in found.items() if stored is None)

    def listed(self, names: Iterable[str]) -> None:
        """Like :meth:`written`, for arrays of tensors and rank tables."""
        for name in names:
            held = self._list(name)
            if held is not None:
                self._lists[name] = _ListSeen(held, self._clock)
                self._seen[name] = self._clock

    def touch(self, written: Mapping[str, Stored]) -> int:
        """Like :meth:`written`, for the tensors that hold the variables.

        Returns:
            The version that they have now.
        """
        tensors.last_write = now = next(tensors.clock)
        for stored in written.values():
            stored.version = now
        self._seen.update(dict.fromkeys(written, now))
        self._clock = now
        return now


def _copied(place: Place, value: Any) -> Any:
    """A copy of a value on a device."""

    def copied(array: Any) -> Any:
        made = copy_on(place, array)
        return count_memory(made, made.nbytes) if isinstance(made, np.ndarray) else made

    return with_arrays(value, copied)


class _ListSeen:
    """An array of tensors or a rank table as devices got it; users may change it unnoticed.

    Args:
        held: what a variable of the scope holds.
        version: of that.
    """

    def __init__(self, held: LoDTensorArray | LoDRankTable, version: int) -> None:
        self.version = version
        self._parts, self._facts = _looked_at(held)

    def is_of(self, held: LoDTensorArray | LoDRankTable | None) -> bool:
        """Whether it has not been written since."""
        if held is None:
            return False
        parts, facts = _looked_at(held)
        same = len(parts) == len(self._parts)
        return same and facts == self._facts and all(map(operator.is_, parts, self._parts))


def _looked_at(held: LoDTensorArray | LoDRankTable) -> tuple[list[Any], list[Any]]:
    """What is the same object, and what is equal, as long as nobody writes."""
    if isinstance(held, LoDRankTable):
        return [held], []
    for tensor in held:
        tensor.in_scope = True  # from now on its version tells of writes to single elements
    parts = [part for tensor in held for part in (tensor, tensor.array)]
    return parts, [(tensor.version, tensor.lod()) for tensor in held]


def _form(held: Any) -> Any:
    """What shape rules know of what a variable holds."""
    return held.form if isinstance(held, Stored) else type(held)


def _form_of(spec: Spec) -> Any:
    """The form of what has this shape and type."""
    found = spec.shape, to_numpy(spec.dtype)
    return (SelectedRows, *found) if spec.kind == VarType.SELECTED_ROWS else found


def _kind(value: Any) -> tuple[Any, Any]:
    return getattr(value, "shape", None), getattr(value, "dtype", None)
