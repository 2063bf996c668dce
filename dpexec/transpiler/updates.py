"""Which operators of a program update parameters, and so belong to the servers."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program

__all__ = ["Updates"]


class Updates:
    """The operators behind the gradients of a program.

    Trainers clip gradients themselves: clipping by the global norm needs all of them.

    Args:
        program: with an optimizer.

    Attributes:
        rates: operators that compute the learning rate.
        of: per parameter, its operators in order: weight decay, then the optimizer.
        optimizers: per parameter, the operator of the optimizer.
        pairs: per parameter, the gradient that they start from.

    Raises:
        EnforceNotMet: there are none, or one that belongs to no parameter.
    """

    def __init__(self, program: Program) -> None:
        self.rates: list[Operator] = []
        self.of: dict[str, list[Operator]] = {}
        self.optimizers: dict[str, Operator] = {}
        self.pairs: dict[str, str] = {}
        for op in program.global_block().ops:
            if op.role & roles.LR_SCHED:
                self.rates.append(op)
            elif op.role & roles.OPTIMIZE and not _clips(op):
                self._add(op)
        if not self.optimizers:
            raise EnforceNotMet(
                "the program has no optimizer, so there is nothing for parameter servers to do: "
                "call minimize before transpile"
            )

    def _add(self, op: Operator) -> None:
        if len(op.role_var) < 2:
            problem = "it updates no single parameter, which parameter servers do not support"
            raise op_error(op, problem, {})
        param, grad = op.role_var[:2]
        self.of.setdefault(param, []).append(op)
        self.pairs.setdefault(param, grad)
        if "Param" in op.inputs and "LearningRate" in op.inputs:
            self.optimizers[param] = op

    @property
    def all(self) -> Sequence[Operator]:
        """All these operators."""
        return [*self.rates, *(op for ops in self.of.values() for op in ops)]


def _clips(op: Operator) -> bool:
    scope = op.attrs.get(roles.NAME_SCOPE, "")
    return "gradient_clip" in scope or "@CLIP" in scope
