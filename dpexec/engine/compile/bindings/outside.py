"""What a step of code gets from outside: feeds and stored variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dpexec.engine.compile.plans.plan import Plan
from dpexec.engine.kernels.located import address
from dpexec.engine.kernels.lowering import Value

__all__ = ["CodeStore", "CodeVariables", "Outside"]


class Outside:
    """A feed or a stored variable, and where its address goes.

    Args:
        device: whose.
        value: what code takes it for.
        copied: whether it is the copy of a stored variable that updates overwrite.
    """

    def __init__(self, device: int, value: Value, copied: bool = False) -> None:
        self.device, self.name, self.copied = device, value.name, copied
        self.value, self.dtype, self._shape = value, value.dtype, value.shape
        self.positions: list[int] = []

    def fits(self, array: Any) -> bool:
        """Whether an array is what the code was made for."""
        return (
            isinstance(array, np.ndarray)
            and (array.shape, array.dtype) == (self._shape, self.dtype)
            and array.flags.c_contiguous
        )

    def write(self, words: memoryview, array: np.ndarray[Any, Any]) -> None:
        """Tell the code where it lies."""
        begin = address(array)
        for position in self.positions:
            words[position] = begin


class CodeVariables(Protocol):
    """The stored variables of a step of code, at every run.

    Attributes:
        follows: whether what the run will overwrite is what the run before took, so that both
            differ in what that one changed; known when they were brought.
    """

    follows: bool

    def bring(self, words: memoryview) -> list[Any] | None:
        """Say where they lie.

        Args:
            words: takes their addresses.

        Returns:
            What must stay where it is during the run; None if code cannot work on some of it.
        """

    def value(self, device: int, name: str) -> Any:
        """The value of a variable after the run; None if it has none."""

    def overwritten(self, device: int, name: str) -> Any:
        """What updates overwrite in the place of a variable; None: the variable itself."""

    def commit(self, made: Callable[[int, str], Any]) -> None:
        """Store what a run made, and count it.

        Args:
            made: gives what it computed of a variable; None if it did not.
        """

    def commit_before_updates(
        self, made: Callable[[int, str], Any], update: Callable[[], None]
    ) -> None:
        """Store a run that has made all but its updates.

        Args:
            made: see :meth:`commit`.
            update: makes them.
        """

    def keep_originals(self) -> None:
        """Let the values before the run remain, though it overwrites variables themselves."""

    def give_up(self) -> None:
        """The run failed when it had begun to copy what it was to overwrite."""


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
        """Those whose steps are made here."""

    def variables(self, plan: Plan, stored: Sequence[Outside]) -> CodeVariables:
        """The variables of a step of code.

        Args:
            plan: what it runs.
            stored: what it takes from here.
        """
