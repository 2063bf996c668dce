"""Interface for running the block of an operator, once per round or step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ops._totals import Deferred, Total

__all__ = ["Course", "Iterations", "Ran", "State"]


@dataclass(slots=True)
class State:
    """A value that goes from round to round.

    Args:
        first: its value in the first round.
        made: the variable of the block that becomes the next round's value; "" for none.
        needed: whether every round has to make it.
        zeros: the variable of the forward round like which a round gets zeros in place of None; ""
            if it gets nothing.
        like: the value that counts if the forward round has no such variable.
    """

    first: Any
    made: str
    needed: bool = False
    zeros: str = ""
    like: Any = None


@dataclass(slots=True)
class Course:
    """How the rounds of a block follow each other.

    Args:
        until: the variable that is False behind the last round; "" if their number is known.
        rounds: their number.
        backwards: whether the last step comes first.
        keeps: whether gradients need the values of the rounds.
        forward: for gradients, the values of the forward block in every step.
        slices: arrays of which each round gets a step, by the name that the step has in the block.
        states: by the name that the value has before a round.
        stacks: variables of the block whose values of all rounds are put together.
        totals: variables of the block that are added up.
    """

    until: str = ""
    rounds: int = 0
    backwards: bool = False
    keeps: bool = False
    forward: Sequence[Mapping[str, Any]] | None = None
    slices: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict)
    stacks: Sequence[str] = ()
    totals: Sequence[str] = ()


@dataclass(slots=True)
class Ran:
    """What rounds gave.

    Args:
        kept: the values of the rounds that gradients need, in the order of the steps.
        states: the values behind the last round, by their names before a round.
        stacks: the arrays of all steps, by name.
        totals: the sums, by name; None without a round that made the variable.
    """

    kept: Sequence[Mapping[str, Any]]
    states: Mapping[str, Any]
    stacks: Mapping[str, Any]
    totals: Mapping[str, Any]


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

    def whole(self, course: Course) -> Ran | None:
        """Run all rounds as one piece of machine code; None, and nothing is done, if they are none.

        Args:
            course: how they follow each other.
        """
