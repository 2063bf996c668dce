"""The persistable variables of all devices, and how they stay equal.

Device 0 uses the user's scope itself; every other device has a child of it. In Reduce mode on
CPUs the children hold no copies, so look-ups reach the user's scope: parameters and optimizer
state exist once. Otherwise each device has its own copy, made when it is first needed and made
again when somebody else (``tensor.set``, a startup program, a loader) wrote the original.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core import tensors
from dpexec.engine.core.arrays import Entry, TensorArray
from dpexec.engine.core.copies import copy_on, with_arrays
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.core.lod import NO_SEQUENCES, Lod
from dpexec.engine.core.memory import count_memory
from dpexec.engine.core.places import CUDAPlace, Place
from dpexec.engine.core.rank_table import LoDRankTable
from dpexec.engine.core.scope import Scope, ScopeVariable
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.core.tensors import LoDTensor, LoDTensorArray

__all__ = ["Replicas", "Stored"]

Stored = LoDTensor | SelectedRows
"""What a persistable variable has its value in."""


class Replicas:
    """Where each device keeps its persistable variables.

    Args:
        scope: the user's scope.
        places: the devices.
        shared: whether all devices use the user's scope.
    """

    def __init__(self, scope: Scope, places: Sequence[Place], shared: bool) -> None:
        self.scope = scope
        self.places = list(places)
        self.shared = shared or len(self.places) == 1
        self.scopes = [scope, *(Scope(scope) for _ in self.places[1:])]
        self.generation = 0
        """Grows whenever values from outside were taken over."""
        self.forms = 0
        """Grows whenever such values had other shapes or types than before."""
        self._form: dict[str, Any] = {}
        self._seen: dict[str, int] = {}
        self._clock = -1
        self._readers: weakref.WeakSet[object] = weakref.WeakSet()

    def stored(self, device: int, name: str) -> Stored | None:
        """What holds a persistable variable on a device; None if it has no value."""
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
        found = self.stored(device, name)
        if found is None:
            var = self.scopes[device].find_var(name)
            return None if var is None else _of_tensors(var.value)
        return found.view() if isinstance(found, SelectedRows) else found.array

    def lod(self, device: int, name: str) -> Lod:
        """The offsets of the sequences in a persistable variable on a device.

        Raises:
            EnforceNotMet: the value does not have as many rows.
        """
        found = self.tensor(device if self.current(name) else 0, name)
        if found is None or not found._lod:
            return NO_SEQUENCES
        lod = Lod(found._lod)
        try:
            lod.check((found.shape() or [1])[0])
        except EnforceNotMet as error:
            raise EnforceNotMet(f"persistable variable {name} in the scope: {error}") from None
        return lod

    def keep_lod(self, device: int, name: str, lod: Lod) -> None:
        """Store the offsets of what a device was just fed for a persistable variable."""
        found = self.tensor(device, name)
        if found is not None:
            found._lod = lod.to_lists()

    def in_sync(self, reader: object) -> bool:
        """Whether a reader has up-to-date copies of what it reads."""
        return self._clock == tensors.last_write and reader in self._readers

    def sync(self, reader: object, names: Sequence[Iterable[str]]) -> None:
        """Give every device up-to-date copies.

        Args:
            reader: who asks; a reader that asked before costs nothing when nothing changed.
            names: per device, the persistable variables that it reads.
        """
        if self.in_sync(reader):
            return
        if self._clock != tensors.last_write:
            self._readers.clear()  # others may read something else that was written
        self._readers.add(reader)
        for device, needed in enumerate(names):
            for name in needed:
                self._sync_one(device, name)
        for name in {name for needed in names for name in needed}:
            original = self.stored(0, name)
            version = -1 if original is None else original.version
            if self._seen.get(name) != version:
                self.generation += 1
                self._seen[name] = version
                self._look_at(name, original)
        self._clock = tensors.last_write

    def _look_at(self, name: str, found: Stored | None) -> None:
        form = None if found is None else found.form
        if form is None or form != self._form.get(name):
            self.forms += 1
        self._form[name] = form

    def _sync_one(self, device: int, name: str) -> None:
        original = self.stored(0, name)
        if original is None:
            return
        place = self.places[device]
        if device == 0:
            if isinstance(place, CUDAPlace) and original.place != place:
                holder = self.scope.find_var(name)
                assert holder is not None  # it has a value
                _hold(holder, place, _copied(place, self.value(0, name)))
            return
        if self.shared:
            if self._seen.get(name) != original.version and name in self.scopes[device]._vars:
                self.scopes[device].erase([name])  # restored, and overwritten before a run
            return
        mine = self.scopes[device]._vars.get(name)
        if mine is None or self._seen.get(name) != original.version:
            holder = self.scopes[device].var(name)
            _hold(holder, place, _copied(place, self.value(0, name)))
            if isinstance(original, LoDTensor):
                holder.get_tensor()._lod = original._lod

    # ---- values that replicas do not have in common

    def current(self, name: str) -> bool:
        """Whether devices have seen what was last written to a variable from outside."""
        original = self.stored(0, name)
        return original is not None and self._seen.get(name) == original.version

    def own_values(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """Per device, what it has of its own; the first one's values are those of the scope."""
        known = [name for name in names if self.current(name)]
        own: list[dict[str, Any]] = [{}]
        for device, scope in enumerate(self.scopes[1:], 1):
            found = ((name, self.tensor(device, name)) for name in known if name in scope._vars)
            own.append({name: tensor.array for name, tensor in found if tensor is not None})
        return own

    def restore(self, name: str, own: Mapping[int, Any]) -> None:
        """Give devices values of their own of a variable that was just written.

        They last until the variable is written again; workers of a cluster take them at the next
        run.

        Args:
            name: of the variable; devices that are not in ``own`` take what was written.
            own: the values by device.
        """
        original = self.tensor(0, name)
        if original is None:
            raise AssertionError(f"variable {name} has no value")
        for device, place in enumerate(self.places[1:], 1):
            tensor = self.scopes[device].var(name).get_tensor()
            tensor.array = copy_on(place, own.get(device, original.array))
            tensor.place = place
        self.generation += 1
        self._seen[name] = original.version
        self._look_at(name, original)

    def taken(self) -> None:
        """Note that the workers of a cluster have what was restored."""
        for scope in self.scopes[1:]:
            scope.erase(scope.local_var_names())

    # ---- results of runs

    def commit(self, device: int, name: str, value: Any) -> None:
        """Store what a run computed for a persistable variable.

        Args:
            device: whose.
            name: of the variable.
            value: the array itself, not a copy.
        """
        if self.shared or device == 0:
            var = self.scope.find_var(name) or self.scope.var(name)
        else:
            var = self.scopes[device].var(name)
        _hold(var, self.places[device], value)

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
        found = ((name, self.stored(0, name)) for name in names)
        self.touch({name: stored for name, stored in found if stored is not None})

    def touch(self, written: Mapping[str, Stored]) -> None:
        """Like :meth:`written`, if one knows what the variables of the user's scope hold."""
        now = tensors.tick()
        for stored in written.values():
            stored.version = now
        self._seen.update(dict.fromkeys(written, now))
        self._clock = now


def _copied(place: Place, value: Any) -> Any:
    """A copy of a value on a device."""

    def copied(array: Any) -> Any:
        made = copy_on(place, array)
        return count_memory(made, made.nbytes) if isinstance(made, np.ndarray) else made

    return with_arrays(value, copied)


def _hold(var: ScopeVariable, place: Place, value: Any) -> None:
    """Let a variable of a scope hold a value that lies on a device."""
    if isinstance(value, SelectedRows):
        var.value = var.value if isinstance(var.value, SelectedRows) else None
        var.get_selected_rows().hold(value, place)
    elif isinstance(value, TensorArray):
        var.value = var.value if isinstance(var.value, LoDTensorArray) else None
        var.get_lod_tensor_array()[:] = [_tensor(entry, place) for entry in value]
    elif isinstance(value, LoDRankTable):
        var.value = value
    else:
        var.value = var.value if isinstance(var.value, LoDTensor) else None
        tensor = var.get_tensor()
        tensor.array, tensor.place = value, place


def _tensor(entry: Entry | None, place: Place) -> LoDTensor:
    """An entry of an array of tensors as the user sees it; empty where nothing was written."""
    tensor = LoDTensor()
    if entry is not None:
        tensor.array, tensor.place = entry[0], place
        if entry[1]:
            tensor._lod = entry[1].to_lists()
    return tensor


def _of_tensors(value: Any) -> TensorArray | LoDRankTable | None:
    """What a variable of a scope holds besides tensors and rows, for a run; None for nothing."""
    if isinstance(value, LoDRankTable):
        return value
    if not isinstance(value, LoDTensorArray):
        return None
    return TensorArray(
        (tensor.array, Lod(tensor._lod)) if tensor._is_initialized() else None for tensor in value
    )


def _kind(value: Any) -> tuple[Any, Any]:
    return getattr(value, "shape", None), getattr(value, "dtype", None)
