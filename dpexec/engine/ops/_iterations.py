"""Interface for running the block of an operator, once per round or step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dpexec.engine.ops._totals import Deferred, Total

__all__ = ["Iterations"]


class Iterations(Deferred, Protocol):
    """Runs a block among the values around the operator."""

    def __call__(
        self, forward: Mapping[str, Any] | None = None, given: Mapping[str, Any] = ...
    ) -> Mapping[str, Any]:
        """Run the block once.

        Args:
            forward: for gradients, the values that the forward body returned for the same round.
            given: initial values of variables of the block.

        Returns:
            The values that the block wrote, without local variables that are not needed later.
        """

    def begin(
        self, forward: Mapping[str, Any] | None = None, given: Mapping[str, Any] = ...
    ) -> Mapping[str, Any]:
        """Like a call, but values other than conditions are valid only after :meth:`finish`."""

    def total(self, xp: Any, name: str) -> Total:
        """Sum a variable of the block over all rounds, which then do not return it.

        Args:
            xp: the array library.
            name: name of the variable.
        """

    def finish(self) -> None:
        """Do all deferred work."""
