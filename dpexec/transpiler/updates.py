"""Finding the operators of a program that update parameters, which run on servers."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir import roles
from dpexec.engine.ir.operator import Operator, op_error
from dpexec.engine.ir.program import Program

__all__ = ["Updates"]


class Updates:
    """The operators of a program after the gradients.

    Trainers clip gradients themselves: clipping by the global norm needs all of them.

    Args:
        program: program with an optimizer.

    Attributes:
        rates: operators that compute the learning rate.
        of: operators of each parameter in order: weight decay, then the optimizer.
        optimizers: the optimizer's operator of each parameter.
        pairs: the gradient of each parameter from which its operators start.

    Raises:
        EnforceNotMet: there are no such operators, or one does not belong to a parameter.
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
