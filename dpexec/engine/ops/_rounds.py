"""Rounds of a block one by one, with states, stacks of values, and sums of gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpexec.engine.core.arrays import TensorArray
from dpexec.engine.ops._iterations import Course, Iterations, Ran, State
from dpexec.engine.ops._totals import Deferred, dense

__all__ = ["or_zeros", "run_rounds"]

Values = Mapping[str, Any]


def run_rounds(xp: Any, body: Iterations, course: Course) -> Ran:
    """Run the rounds of a block, as machine code if they are.

    Args:
        xp: the array library.
        body: runs the operators of the block once, or the whole course.
        course: how the rounds follow each other; their number is known.
    """
    ran = body.whole(course)
    if ran is not None:
        return ran
    stacks = {name: _Stack(xp, course.rounds, body) for name in course.stacks}
    totals = {name: body.total(xp, name) for name in course.totals}
    values = {name: state.first for name, state in course.states.items()}
    kept: list[Values] = [{}] * course.rounds
    for step in _order(course):
        left = None if course.forward is None else course.forward[step]
        slices = {name: array[step] for name, array in course.slices.items()}
        given = dict(_given(xp, course.states, values, left))
        made = body.begin(left, given | slices)
        if course.keeps:
            kept[step] = made
        for name, stack in stacks.items():
            stack.put(step, made[name])
        values = {n: _next(xp, state, values[n], made) for n, state in course.states.items()}
    body.finish()
    return Ran(
        kept,
        values,
        {name: stack.whole for name, stack in stacks.items()},
        {name: total.whole for name, total in totals.items()},
    )


def _order(course: Course) -> Iterator[int]:
    steps = range(course.rounds)
    return iter(steps[::-1] if course.backwards else steps)


def _given(
    xp: Any, states: Mapping[str, State], values: Values, left: Values | None
) -> Iterator[tuple[str, Any]]:
    """The values of states before a round."""
    for name, state in states.items():
        if state.zeros:
            yield name, or_zeros(xp, values[name], (left or {}).get(state.zeros, state.like))
        elif values[name] is not None:
            yield name, values[name]


def _next(xp: Any, state: State, value: Any, made: Values) -> Any:
    """The value of a state after a round.

    A gradient of a variable that a round overwrites without reading it ends there, except for
    arrays: a round writes one entry, and the others remain.
    """
    if state.made and (state.needed or state.made in made):
        return dense(xp, made[state.made])
    return value if isinstance(value, TensorArray) else None


def or_zeros(xp: Any, gradient: Any, value: Any) -> Any:
    """A gradient; for none, zeros like the variable.

    Args:
        xp: the array library.
        gradient: None for none.
        value: the variable.
    """
    if gradient is not None:
        return gradient
    empty = value is None or isinstance(value, TensorArray)
    return TensorArray() if empty else xp.zeros_like(value)


class _Stack:
    """An array of the values of all steps.

    Args:
        xp: the array library.
        count: number of steps.
        deferred: does the work.

    Attributes:
        whole: the array; None as long as there is no value.
    """

    def __init__(self, xp: Any, count: int, deferred: Deferred) -> None:
        self._xp = xp
        self._deferred = deferred
        self._count = count
        self.whole: Any = None

    def put(self, step: int, value: Any) -> None:
        """Store the value of a step; all values have the same shape."""
        if self.whole is None:
            self.whole = self._xp.empty((self._count, *value.shape), value.dtype)
        self._deferred.copy(self.whole[step : step + 1], value)
