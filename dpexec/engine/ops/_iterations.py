"""What runs the block of an operator, once per round or step."""

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
            forward: of gradients, what the same round of the forward body returned.
            given: values that variables of the block begin with.

        Returns:
            What the block wrote, but for its own variables that nobody needs afterwards.
        """

    def begin(
        self, forward: Mapping[str, Any] | None = None, given: Mapping[str, Any] = ...
    ) -> Mapping[str, Any]:
        """Like a call, but before :meth:`finish` nobody may look at numbers.

        All but conditions: these are there.
        """

    def total(self, xp: Any, name: str) -> Total:
        """Add up what all rounds compute for a variable of the block, which they do not return.

        Args:
            xp: the array library.
            name: of the variable.
        """

    def finish(self) -> None:
        """Do all that was put off."""
