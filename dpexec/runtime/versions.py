"""The state of a replica on a worker: as the last step left it, and as the step before did.

When a worker is lost in the middle of a step, some replicas have made that step and others have
not; the older version lets all of them stand at the same one again. It costs memory, but no more
copies than one: the arrays of the two versions take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["StaleTaskError", "Versions"]

Values = dict[str, Any]


class StaleTaskError(RuntimeError):
    """A task is of another time than the state that it was to work on."""


class Versions:
    """Values after the last step, and after the one before.

    Args:
        step: number of the step that made the values.
        values: by name; they are not copied.
    """

    def __init__(self, step: int, values: Mapping[str, Any] | None = None) -> None:
        self.step = step
        self.values: Values = dict(values or {})
        self._before: tuple[int, Values] | None = None

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps whose values are known, the latest one first."""
        return (self.step,) if self._before is None else (self.step, self._before[0])

    def at(self, step: int) -> Values:
        """The values after a step.

        Raises:
            StaleTaskError: they are not known (any more).
        """
        if step == self.step:
            return self.values
        if self._before is not None and step == self._before[0]:
            return self._before[1]
        raise StaleTaskError(f"state is that after step {self.step}, not after step {step}")

    def stand_at(self, step: int) -> None:
        """Go back to the values after a step, if they are not the latest.

        Raises:
            StaleTaskError: they are not known (any more).
        """
        values = self.at(step)
        if step != self.step:
            self.step, self.values, self._before = step, values, None

    def set(self, values: Mapping[str, Any]) -> None:
        """Replace values by copies of what comes from outside; there is no way back from that."""
        copies = {name: np.array(value) for name, value in values.items()}
        self.values, self._before = {**self.values, **copies}, None

    def scratch(self, names: Iterable[str]) -> Values:
        """Copies of values that a step may overwrite.

        They lie where the values of the step before lay, which must not be needed any more.
        """
        copies = {}
        for name in names:
            if name in self.values:
                copies[name] = self._spare(name, self.values[name])
                np.copyto(copies[name], self.values[name])
        return copies

    def commit(self, step: int, found: Mapping[str, Any], scratch: Mapping[str, Any]) -> None:
        """Make a step's values the latest ones.

        Args:
            step: its number.
            found: what it computed.
            scratch: what :meth:`scratch` gave; such arrays are taken over, others are copied.
        """
        made = dict(found)
        for name, value in found.items():
            if value is not scratch.get(name):
                made[name] = self._spare(name, value)
                np.copyto(made[name], value)
        self._before = self.step, self.values
        self.step, self.values = step, {**self.values, **made}

    def _spare(self, name: str, like: Any) -> Any:
        """An array for a value: that of the version which goes, if it fits and goes indeed."""
        like = np.asarray(like)
        old = None if self._before is None else self._before[1].get(name)
        fits = isinstance(old, np.ndarray) and (old.shape, old.dtype) == (like.shape, like.dtype)
        return old if fits and old is not self.values.get(name) else np.empty_like(like, order="C")
