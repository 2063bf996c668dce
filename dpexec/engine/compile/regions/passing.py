"""Operators of a block that only pass arrays on: code may wait while they run.

Such operators still look at the numbers of some inputs, such as the index into an array of tensors.
If code computes these inputs, waiting code runs first
(:mod:`dpexec.engine.compile.regions.deferred`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dpexec.engine.compile.regions.bodies import Plain, Runnable
from dpexec.engine.compile.regions.env import Env
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.opfacts import Passing

__all__ = ["Passed", "Wait", "may_pass", "passing"]


def may_pass(op: Operator) -> bool:
    """Whether an operator passes values on by instructions of :mod:`dpexec.engine.kernels.rounds`.

    Args:
        op: the operator.
    """
    passes = op.definition.passes
    if passes is None or not passes.code:
        return False
    return passes.code != "count" or float(op.attrs.get("step", 1.0)).is_integer()


class Wait:
    """Runs the code that waits."""

    def run(self, env: Env) -> None:
        """See :class:`Runnable`."""
        env.deferred.finish()


class Passed:
    """An operator that passes arrays on, usually without the expense of a call of its kernel.

    Args:
        plain: the operator.
        passes: how it passes them on, see :class:`~dpexec.engine.ir.opfacts.Passing`.

    Attributes:
        op: the operator.
    """

    def __init__(self, plain: Plain, passes: Passing) -> None:
        self._plain, self._drops, self.op = plain, plain.drops, plain.op
        self._passes = passes.make(plain.op)

    def run(self, env: Env) -> None:
        """See :class:`Runnable`."""
        try:
            passed = env.record is None and self._passes(env)
        except (KeyError, AttributeError):  # a value is missing or unexpected: the kernel says so
            passed = False
        if not passed:
            self._plain.run(env)
            return
        for name in self._drops:
            env.pop(name, None)


def passing(
    parts: Sequence[Runnable], late: Collection[str], shown: Collection[str]
) -> list[Runnable]:
    """Let code wait as long as no operator looks at the numbers that it computes.

    Args:
        parts: the parts of a block, in order.
        late: names of the values that code computes.
        shown: names of the values that are looked at after every round.

    Returns:
        The parts; before operators that look at numbers of code, and at the end if ``shown`` has
        some, waiting code runs.
    """
    if not late:
        return list(parts)
    operators = [part.op for part in parts if isinstance(part, Plain)]
    found = ((op, op.definition.passes) for op in operators)
    passed = (op.outputs[passes.unseen] for op, passes in found if passes and passes.unseen)
    unknown = {*late, *(name for names in passed for name in names)}
    made: list[Runnable] = []
    for part in parts:
        if isinstance(part, Plain):
            passes = part.op.definition.passes
            if _looks(part.op, passes, unknown):
                made.append(Wait())
            if passes is not None:
                part = Passed(part, passes)
        made.append(part)
    return made if unknown.isdisjoint(shown) else [*made, Wait()]


def _looks(op: Operator, passes: Passing | None, unknown: Collection[str]) -> bool:
    """Whether an operator looks at numbers that waiting code computes."""
    if op.bodies:  # the operators inside may read any value around them
        return True
    if passes is None:
        return any(name in unknown for name in (*op.reads, *op.writes))
    return any(name in unknown for slot in passes.looks_at for name in op.inputs[slot])
