"""The inputs of a step of code: feeds and stored variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Value

__all__ = ["CodeStore", "CodeVariables", "Outside"]


class Outside:
    """A feed or a stored variable, and the words that take its address.

    Args:
        device: the device that it belongs to.
        value: the shape and type that code was made for.
        copied: whether it is the copy of a stored variable that updates overwrite.
    """

    def __init__(self, device: int, value: Value, copied: bool = False) -> None:
        self.device, self.name, self.copied = device, value.name, copied
        self.value, self.dtype, self._shape = value, value.dtype, value.shape
        self.positions: list[int] = []

    def fits(self, array: Any) -> bool:
        """Whether an array has the layout, shape and type that the code was made for."""
        return (
            isinstance(array, np.ndarray)
            and (array.shape, array.dtype) == (self._shape, self.dtype)
            and array.flags.c_contiguous
        )

    def write(self, words: memoryview, array: np.ndarray[Any, Any]) -> None:
        """Write the array's address into the words of the code."""
        begin = address(array)
        for position in self.positions:
            words[position] = begin


class CodeVariables(Protocol):
    """The stored variables of a step of code, at every run.

    Attributes:
        follows: whether the copies that the run will overwrite are the variables that the run
            before started from. Copies and variables then differ only in what that run changed.
            Known after :meth:`bring`.
    """

    follows: bool

    def bring(self, words: memoryview) -> list[Any] | None:
        """Write the addresses of the variables.

        Args:
            words: takes the addresses.

        Returns:
            The arrays, to be kept until the run ends; None if code cannot work on one of them.
        """

    def value(self, device: int, name: str) -> Any:
        """The value of a variable after the run; None if it has none."""

    def overwritten(self, device: int, name: str) -> Any:
        """The copy of a variable that updates overwrite; None if they overwrite the variable."""

    def commit(self, new_value: Callable[[int, str], Any]) -> None:
        """Store the variables that a run computed, and count the run.

        Args:
            new_value: gives the new value of a variable; None if the run did not compute one.
        """

    def commit_before_updates(
        self, new_value: Callable[[int, str], Any], update: Callable[[], None]
    ) -> None:
        """Store a run that has made all but its updates.

        Args:
            new_value: see :meth:`commit`.
            update: makes them.
        """

    def keep_originals(self) -> None:
        """Copy the variables before the run, which overwrites them."""

    def give_up(self) -> None:
        """Called when the run failed after it had begun to overwrite copies."""


class CodeStore(Protocol):
    """Where the variables of steps of code lie.

    Attributes:
        copies: whether updates overwrite copies, so that the values before the step remain.
    """

    copies: bool

    def updates_wait(self, plan: Plan) -> bool:
        """Whether updates of a plan wait until nobody can go back to the step before.

        They then overwrite the variables themselves.

        Args:
            plan: what runs.
        """

    @property
    def devices(self) -> Sequence[int]:
        """The devices whose steps run in this process."""

    def variables(self, plan: Plan, stored: Sequence[Outside]) -> CodeVariables:
        """The variables of a step of code.

        Args:
            plan: the plan that it runs.
            stored: the variables that it reads or overwrites.
        """
