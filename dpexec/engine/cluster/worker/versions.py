"""The state of a replica on a worker in two versions: after the last step, and the one before.

When a worker is lost in the middle of a step, some replicas have made that step and others have
not. The older version lets all of them go back to the same step. It costs memory and one copy of
each updated variable, as the arrays of the two versions take turns. It costs neither if the updates
of the last step wait (:class:`LateUpdates`). Replicas of one worker share arrays of equal values.

On GPUs arrays take no turns: freed memory goes to CuPy's pool, which reuses it for the next copy.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dpexec.engine.core.copies import copy_on, values_on, with_arrays
from dpexec.engine.core.places import CPUPlace, CUDAPlace, Place

__all__ = ["StaleTaskError", "StepArrays", "Versions", "parts"]

Values = dict[str, Any]
_changes = itertools.count(1)


class StaleTaskError(RuntimeError):
    """A task belongs to another step or epoch than the state that it was to work on."""


class _Stored(NamedTuple):
    """A value, the array that it is stored in, and the replica that it was stored for first."""

    value: Any
    array: Any
    owner: Versions


class StepArrays:
    """The arrays in which replicas of one worker store the results of a step.

    If a value is one array for several replicas while the step runs, such as a broadcast one, it is
    stored in one array for all of them. That array is read-only from then on, and is freed when no
    replica refers to it.
    """

    def __init__(self) -> None:
        self._stored: dict[tuple[str, int], _Stored] = {}
        self._lock = threading.Lock()  # tasks of several replicas store at the same time

    def lend(self, owner: Versions, name: str, array: Any) -> None:
        """Note that a step computes a variable in the array that will store it."""
        self._stored[name, id(array)] = _Stored(array, array, owner)

    def store(self, owner: Versions, name: str, value: Any) -> Any:
        """The array in which a replica stores a value; nothing else writes to it."""
        key = name, id(value)  # the value is kept alive below, so that its id stays its own
        with self._lock:
            if key not in self._stored:
                self._stored[key] = _Stored(value, owner.copied(name, value), owner)
            stored = self._stored[key]
            if stored.owner is not owner and isinstance(stored.array, np.ndarray):
                stored.array.flags.writeable = False
        return stored.array


class LateUpdates:
    """Updates of the last step, which wait until no replica can go back to the step before.

    Until they are made, their variables still have the values of the step before.

    Args:
        make: makes the updates.
        replicas: the replicas whose variables they overwrite.
    """

    def __init__(self, make: Callable[[], None], replicas: Collection[Versions]) -> None:
        self._make: Callable[[], None] | None = make
        self._replicas: Collection[Versions] = replicas
        self._made = False
        self._lock = threading.RLock()  # other threads may read the updated variables

    def make(self) -> None:
        """Make the updates, if that was not done.

        Raises:
            StaleTaskError: a replica went back to the step before, or the updates failed.
        """
        with self._lock:
            if self._made:
                return
            make, self._make = self._make, None
            if make is None:
                raise StaleTaskError("updates were left, as a replica went back, or they failed")
            for versions in self._replicas:
                versions.forget_before()  # first, so that threads that read it notice the change
            make()
            replicas, self._replicas, self._made = self._replicas, (), True
            for versions in replicas:
                versions.late = None

    def leave(self) -> None:
        """Drop the updates: they are never made."""
        with self._lock:
            self._make, self._replicas = None, ()


class Versions:
    """Values after the last step, and after the step before.

    Args:
        step: number of the step that made the values.
        values: the values by name; they are not copied.
        place: the device that copies are made on; None: the host.

    Attributes:
        change: a number that is new for every commit in this process.
    """

    def __init__(
        self, step: int, values: Mapping[str, Any] | None = None, place: Place | None = None
    ) -> None:
        self.step, self._place = step, place or CPUPlace()
        self.values: Values = dict(values or {})
        self._before: tuple[int, Values] | None = None
        self.change = 0
        self.late: LateUpdates | None = None
        self._spare: Values = {}  # free arrays, by the variable that they belonged to

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose values are known, the latest one first."""
        return (self.step,) if self._before is None else (self.step, self._before[0])

    @property
    def before(self) -> Values:
        """The values after the step before the last; empty if they are not known any more."""
        return {} if self._before is None else self._before[1]

    def at(self, step: int) -> Values:
        """The values after a step.

        Raises:
            StaleTaskError: these values are not known, or not any more.
        """
        if step == self.step:
            self.settle()
            return self.values
        if self._before is not None and step == self._before[0]:
            return self._before[1]
        raise StaleTaskError(f"state is that after step {self.step}, not after step {step}")

    def part_before(self, names: Collection[str]) -> tuple[int, Values] | None:
        """The step before the last, and some of its values on the host, which stay as they are."""
        if self._before is None:
            return None
        step, values = self._before
        found = {name: value for name, value in values.items() if name in names}
        if self.late is not None:  # waiting updates overwrite them
            found = {name: self.copied(name, value) for name, value in found.items()}
        return step, values_on(CPUPlace(), found)

    def part(self, names: Collection[str], before: tuple[int, Values] | None) -> Versions:
        """The latest version of some variables on the host, with the version before it."""
        self.settle()
        wanted = {name: value for name, value in self.values.items() if name in names}
        found = Versions(self.step, values_on(CPUPlace(), wanted))
        found._before = before
        return found

    def stand_at(self, step: int) -> None:
        """Go back to the values after a step, if they are not the latest.

        Raises:
            StaleTaskError: these values are not known, or not any more.
        """
        if step != self.step:
            values = self.at(step)
            if self.late is not None:
                self.late.leave()
                values = self.at(step)  # unless another thread has just made them
            self.step, self.values, self._before, self.late = step, values, None, None

    def settle(self) -> None:
        """Make waiting updates: no replica can go back any more."""
        late = self.late
        if late is not None:
            late.make()

    def set(self, values: Mapping[str, Any], arrays: StepArrays) -> None:
        """Replace values by copies of new ones; the step before is forgotten.

        Args:
            values: the new values by name.
            arrays: shared by all replicas that take values at the same time.
        """
        self.settle()
        copies = {name: arrays.store(self, name, value) for name, value in values.items()}
        self.values, self._before = {**self.values, **copies}, None

    def scratch(self, names: Iterable[str], arrays: StepArrays) -> Values:
        """Copies of values that a step may overwrite.

        They use the arrays of the step before, which is forgotten: it must not be needed any more.

        Args:
            names: names of the variables; those without a value are left out.
            arrays: the arrays in which the step will be stored.
        """
        self.forget_before()
        copies = {
            name: self.copied(name, self.values[name]) for name in names if name in self.values
        }
        for name, copy in copies.items():
            arrays.lend(self, name, copy)
        return copies

    def keep_originals(self, names: Iterable[str]) -> Values:
        """Keep copies of values, as a step overwrites their arrays; returns these arrays.

        Args:
            names: names of the variables; those without a dense value on the host are left out.
        """
        found = {name: self.values.get(name) for name in names}
        arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.values = {**self.values, **copies}
        return arrays

    def own(self, names: Iterable[str]) -> bool:
        """Replace arrays that other replicas share by copies.

        Args:
            names: names of the variables.

        Returns:
            Whether any array was shared.
        """
        found = {name: self.values.get(name) for name in names}
        shared = {
            n: v for n, v in found.items() if isinstance(v, np.ndarray) and not _is_private(v)
        }
        if shared:
            self.values = {**self.values, **{name: np.array(v) for name, v in shared.items()}}
        return bool(shared)

    def rooms(self, names: Iterable[str]) -> Values:
        """Arrays for the new values of a step, to be used when the step before is not needed.

        They are the arrays that :meth:`scratch` would return, without copied values in them.

        Args:
            names: names of the variables; those without a dense value on the host are left out.
        """
        before = self.before
        found: Values = {}
        for name in names:
            value, old = self.values.get(name), before.get(name)
            if isinstance(value, np.ndarray):
                free = old is not value and _is_private(old) and _is_like(old, value)
                found[name] = old if free else np.empty_like(value, order="C")
        return found

    def commit(
        self,
        step: int,
        found: Mapping[str, Any],
        arrays: StepArrays,
        placed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Make a step's values the latest ones.

        Args:
            step: number of the step.
            found: its results. Arrays of :meth:`scratch` are taken over, others are copied.
            arrays: the arrays in which the step is stored.
            placed: results in arrays of its own, see :meth:`rooms`.
        """
        if found:
            self.forget_before()  # its arrays may take the copies
        made = {name: arrays.store(self, name, value) for name, value in found.items()}
        self._before, self.change = (self.step, self.values), next(_changes)
        self.step, self.values, self._spare = step, {**self.values, **placed, **made}, {}

    def copied(self, name: str, value: Any) -> Any:
        """A copy of a value, in a free array if one fits."""
        if isinstance(self._place, CUDAPlace):
            return with_arrays(value, functools.partial(copy_on, self._place))
        if not hasattr(value, "__array__"):  # sparse rows and arrays of tensors have several arrays
            return with_arrays(value, np.array)
        value = np.asarray(value)
        old = self._spare.pop(name, None)
        fits = old is not None and _is_like(old, value)
        copy = old if fits else np.empty_like(value, order="C")
        np.copyto(copy, value)
        return copy

    def forget_before(self) -> None:
        """Forget the step before the last; its arrays become free unless they are shared."""
        if self._before is None:
            return
        (_, before), self._before = self._before, None
        self._spare = {
            name: array
            for name, array in before.items()
            if array is not self.values.get(name) and _is_private(array)
        }


def parts(
    replicas: Mapping[int, Versions], names: Mapping[int, Collection[str]]
) -> dict[int, Versions]:
    """Both versions of some variables of a worker's replicas, on the host.

    Waiting updates are those of all replicas: to make them forgets the step before of all.

    Args:
        replicas: the replicas, by device.
        names: names of the variables, per device.
    """
    before = {d: versions.part_before(names[d]) for d, versions in replicas.items() if names[d]}
    return {device: replicas[device].part(names[device], found) for device, found in before.items()}


def _is_like(array: Any, value: np.ndarray[Any, Any]) -> bool:
    return (array.shape, array.dtype) == (value.shape, value.dtype)


def _is_private(array: Any) -> bool:
    """Whether an array is on the host, and not shared: shared ones are read-only."""
    return isinstance(array, np.ndarray) and array.flags.writeable
