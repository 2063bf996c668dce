"""Shapes of variables that operators give new ones in place, as ``reshape(inplace=True)`` does."""

from __future__ import annotations

from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec

__all__ = ["Specs"]


class Specs:
    """What such variables are before and after each operator; a program declares the last shape."""

    def __init__(self) -> None:
        self._now: dict[str, Spec] = {}

    def around(self, op: Operator) -> tuple[dict[str, Spec], dict[str, Spec]]:
        """What contradicts the declarations of the inputs and of the outputs of an operator.

        Args:
            op: the next operator in the order of a run.
        """
        before = {name: self._now[name] for name in op.input_arg_names if name in self._now}
        if op.block.idx or op.definition.infer is None:  # what loops write has no one shape
            return before, {}
        declared = {name: op.block._var_recursive(name).spec for name in op.output_arg_names}
        after = {}
        for name, spec in op.infer_outputs({**op.input_specs(), **before}).items():
            self._now.pop(name, None)
            if name in declared and _contradict(spec, declared[name]):
                after[name] = spec
        self._now.update(after)
        return before, after


def _contradict(made: Spec, declared: Spec) -> bool:
    """Whether two shapes cannot be the same in any run."""
    if made.kind != declared.kind or len(made.shape) != len(declared.shape):
        return True
    sizes = zip(made.shape, declared.shape, strict=True)
    return any(a != b and min(a, b) >= 0 for a, b in sizes)
