"""The state of a replica on a worker: as the last step left it, and as the step before did.

When a worker is lost in the middle of a step, some replicas have made that step and others have
not; the older version lets all of them stand at the same one again. It costs memory, but no more
copies than one: the arrays of the two versions take turns. It costs neither where the updates of
the last step wait (:class:`LateUpdates`). What replicas of one worker have in common lies there
once, in an array that all of them refer to.

On GPUs arrays take no turns: what is freed goes to CuPy's pool, which gives it to the next copy.
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

__all__ = ["StaleTaskError", "StepArrays", "Versions"]

Values = dict[str, Any]
_changes = itertools.count(1)


class StaleTaskError(RuntimeError):
    """A task is of another time than the state that it was to work on."""


class _Stored(NamedTuple):
    """A value, and the array that it is stored in for a replica."""

    value: Any
    array: Any
    owner: Versions


class StepArrays:
    """The arrays in which replicas of one worker store what a step made.

    What is one array for several replicas while the step runs, as what is broadcast, is stored in
    one for all of them. Such an array is never written again: it is read-only from then on, and
    goes when all replicas have let go of it.
    """

    def __init__(self) -> None:
        self._stored: dict[tuple[str, int], _Stored] = {}
        self._lock = threading.Lock()  # tasks of several replicas store at the same time

    def lend(self, owner: Versions, name: str, array: Any) -> None:
        """Let a step compute a variable in the array in which it will be stored."""
        self._stored[name, id(array)] = _Stored(array, array, owner)

    def store(self, owner: Versions, name: str, value: Any) -> Any:
        """The array of a value of a replica, which nobody else writes."""
        key = name, id(value)  # the value is held below, so that no other one gets its id
        with self._lock:
            if key not in self._stored:
                self._stored[key] = _Stored(value, owner.copied(name, value), owner)
            stored = self._stored[key]
            if stored.owner is not owner and isinstance(stored.array, np.ndarray):
                stored.array.flags.writeable = False
        return stored.array


class LateUpdates:
    """Updates of the last step, which wait until nobody can go back to the step before.

    Until then the values of the step before lie where those of the last one will be.

    Args:
        make: makes them.
        replicas: whose variables they overwrite.
    """

    def __init__(self, make: Callable[[], None], replicas: Collection[Versions]) -> None:
        self._make: Callable[[], None] | None = make
        self._replicas: Collection[Versions] = replicas
        self._made = False
        self._lock = threading.RLock()  # others may want to read what they make

    def make(self) -> None:
        """Make them, once.

        Raises:
            StaleTaskError: a replica went back to the step before, or they failed.
        """
        with self._lock:
            if self._made:
                return
            make, self._make = self._make, None
            if make is None:
                raise StaleTaskError("updates were left, as a replica went back, or they failed")
            for versions in self._replicas:
                versions.forget_before()  # first: who copies it looks again when that is done
            make()
            replicas, self._replicas, self._made = self._replicas, (), True
            for versions in replicas:
                versions.late = None

    def leave(self) -> None:
        """Never make them."""
        with self._lock:
            self._make, self._replicas = None, ()


class Versions:
    """Values after the last step, and after the one before.

    Args:
        step: number of the step that made the values.
        values: by name; they are not copied.
        place: the device that copies are made on; None: the host.

    Attributes:
        change: number of the step that was stored last, among all that this process stored.
    """

    def __init__(
        self, step: int, values: Mapping[str, Any] | None = None, place: Place | None = None
    ) -> None:
        self.step, self._place = step, place or CPUPlace()
        self.values: Values = dict(values or {})
        self._before: tuple[int, Values] | None = None
        self.change = 0
        self.late: LateUpdates | None = None
        self._spare: Values = {}  # arrays that are free, by the variable that they were of

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose values are known, the latest one first."""
        return (self.step,) if self._before is None else (self.step, self._before[0])

    @property
    def before(self) -> Values:
        """The values of the step before the last; none if they are not known any more."""
        return {} if self._before is None else self._before[1]

    def at(self, step: int) -> Values:
        """The values after a step.

        Raises:
            StaleTaskError: they are not known (any more).
        """
        if step == self.step:
            self.settle()
            return self.values
        if self._before is not None and step == self._before[0]:
            return self._before[1]
        raise StaleTaskError(f"state is that after step {self.step}, not after step {step}")

    def part(self, names: Collection[str]) -> Versions:
        """The values of some variables, on the host."""
        before = [] if self._before is None else [self._before]
        if self.late is not None and self._before is not None:
            step, values = self._before
            before = [(step, {n: self.copied(n, v) for n, v in values.items() if n in names})]
            self.settle()
        (step, values), *before = [
            (step, values_on(CPUPlace(), {n: v for n, v in values.items() if n in names}))
            for step, values in [(self.step, self.values), *before]
        ]
        found = Versions(step, values)
        found._before = before[0] if before else None
        return found

    def stand_at(self, step: int) -> None:
        """Go back to the values after a step, if they are not the latest.

        Raises:
            StaleTaskError: they are not known (any more).
        """
        if step != self.step:
            values = self.at(step)
            if self.late is not None:
                self.late.leave()
            self.step, self.values, self._before, self.late = step, values, None, None

    def settle(self) -> None:
        """Make the updates that wait: nobody goes back to the step before."""
        late = self.late
        if late is not None:
            late.make()

    def set(self, values: Mapping[str, Any], arrays: StepArrays) -> None:
        """Replace values by copies of what comes from outside; there is no way back from that.

        Args:
            values: by name.
            arrays: of all replicas that take values at the same time.
        """
        self.settle()
        copies = {name: arrays.store(self, name, value) for name, value in values.items()}
        self.values, self._before = {**self.values, **copies}, None

    def scratch(self, names: Iterable[str], arrays: StepArrays) -> Values:
        """Copies of values that a step may overwrite.

        They lie where the values of the step before lay, which must not be needed any more: they
        are forgotten.

        Args:
            names: of variables; those that have no value are left out.
            arrays: in which the step will be stored.
        """
        self.forget_before()
        copies = {
            name: self.copied(name, self.values[name]) for name in names if name in self.values
        }
        for name, copy in copies.items():
            arrays.lend(self, name, copy)
        return copies

    def keep_originals(self, names: Iterable[str]) -> Values:
        """Copy values, as a step overwrites the arrays in which they lie; returns these.

        Args:
            names: of variables; those that have no dense value on the host are left out.
        """
        found = {name: self.values.get(name) for name in names}
        arrays = {name: value for name, value in found.items() if isinstance(value, np.ndarray)}
        copies = {name: np.array(array) for name, array in arrays.items()}
        self.values = {**self.values, **copies}
        return arrays

    def own(self, names: Iterable[str]) -> bool:
        """Let arrays be nobody else's, by copies of those that others refer to.

        Args:
            names: of variables.

        Returns:
            Whether there were some.
        """
        found = {name: self.values.get(name) for name in names}
        shared = {
            n: v for n, v in found.items() if isinstance(v, np.ndarray) and not _is_private(v)
        }
        if shared:
            self.values = {**self.values, **{name: np.array(v) for name, v in shared.items()}}
        return bool(shared)

    def rooms(self, names: Iterable[str]) -> Values:
        """Arrays for what a step makes of values, once nobody needs those of the step before.

        They are what :meth:`scratch` would give, with other numbers in them.

        Args:
            names: of variables; those that have no dense value on the host are left out.
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
            step: its number.
            found: what it computed; what :meth:`scratch` gave is taken over, the rest is copied.
            arrays: in which the step is stored.
            placed: what it computed in arrays that nobody else has, see :meth:`rooms`.
        """
        if found:
            self.forget_before()  # what is copied may lie there
        made = {name: arrays.store(self, name, value) for name, value in found.items()}
        self._before, self.change = (self.step, self.values), next(_changes)
        self.step, self.values, self._spare = step, {**self.values, **placed, **made}, {}

    def copied(self, name: str, value: Any) -> Any:
        """A copy of a value, in an array that became free if one fits."""
        if isinstance(self._place, CUDAPlace):
            return with_arrays(value, functools.partial(copy_on, self._place))
        if not hasattr(value, "__array__"):  # rows, arrays of tensors: several arrays, of any size
            return with_arrays(value, np.array)
        value = np.asarray(value)
        old = self._spare.pop(name, None)
        fits = old is not None and _is_like(old, value)
        copy = old if fits else np.empty_like(value, order="C")
        np.copyto(copy, value)
        return copy

    def forget_before(self) -> None:
        """Forget the step before the last; its arrays become free unless others refer to them."""
        if self._before is None:
            return
        (_, before), self._before = self._before, None
        self._spare = {
            name: array
            for name, array in before.items()
            if array is not self.values.get(name) and _is_private(array)
        }


def _is_like(array: Any, value: np.ndarray[Any, Any]) -> bool:
    return (array.shape, array.dtype) == (value.shape, value.dtype)


def _is_private(array: Any) -> bool:
    """Whether nobody else refers to an array of the host."""
    return isinstance(array, np.ndarray) and array.flags.writeable
