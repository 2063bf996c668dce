"""A branch whose operators all have a lowering, as machine code: a loop of one round, or none.

What the branch writes gets its earlier value first. Then the loop calls the kernels of the block,
and takes over what they computed, as many times as the condition holds: once or not at all.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dpexec.engine.compile.regions.operands import AnyValue, Brought, Operands, emitted
from dpexec.engine.compile.regions.table import word_of
from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.graph.ssa import OpNode
from dpexec.engine.ir.operator import Operator
from dpexec.engine.ir.spec import Spec
from dpexec.engine.kernels import implementations, shapes
from dpexec.engine.kernels.calls import Call
from dpexec.engine.kernels.loop import Loop, unknowns
from dpexec.engine.kernels.lowering import Code, Constant, Value, flat

__all__ = ["emit_branch"]


def emit_branch(
    code: Code,
    node: OpNode,
    specs: Mapping[str, Spec],
    inputs: Mapping[str, AnyValue],
    results: Mapping[str, Value],
) -> bool:
    """Emit the code of a branch.

    Args:
        code: takes the calls.
        node: the operator.
        specs: of the values around the block.
        inputs: the values that the block reads or keeps, by name.
        results: the values that it may write, by name.

    Returns:
        False, before anything is emitted, if it is no branch, if the condition is more than one
        boolean, or if an operator of the block is no code or needs the number of rows.
    """
    op = node.op
    if op is None or not op.definition.branches or not op.attrs.get("is_scalar_condition"):
        return False
    (condition,) = op.inputs["Cond"]
    around = {name: value for name, value in inputs.items() if isinstance(value, Value)}
    body = _Body(specs, around)
    if len(around) < len(inputs) or not all(body.take(each) for each in op.bodies[0].ops):
        return False
    if not all(body.store(name, out) for name, out in results.items()):
        return False
    calls = body.calls()
    if calls is None:
        return False
    for name, out in results.items():
        shapes.move(code, around[name], out, (out.size,), (0, [1]), (0, [1]))
    if not calls:  # an empty case
        return True
    rounds = code.scratch(1, dtype=np.int64)
    shapes.cast(code, [around[condition]], [rounds], {})
    Loop(calls, len(body.places)).emit(code, body.places, (rounds, code.scratch(1, 1)))
    return True


class _Body:
    """The operators of a block while they become calls.

    Args:
        specs: of the values around it.
        around: these values, by name.

    Attributes:
        places: the values and constants whose addresses the calls get.
    """

    def __init__(self, specs: Mapping[str, Spec], around: Mapping[str, Value]) -> None:
        self.places: list[Value | Constant] = []
        self._specs, self._code = dict(specs), Code()
        self._operands = Operands(self._specs, (), {})
        # without their memory: its life is counted in calls of the code around
        given = {name: replace(value, buffer=None) for name, value in around.items()}
        self._operands.made.update(given)
        self._around: dict[Value | Constant, Value | Constant] = {
            value: around[name] for name, value in given.items()
        }

    def take(self, op: Operator) -> bool:
        """Add the calls of an operator; False if it is no code."""
        lower = implementations.find(op.type, "code")
        if lower is None or op.bodies or op.definition.is_random:
            return False
        try:
            self._specs.update(op.infer_outputs(self._specs))
        except EnforceNotMet:  # a rule is broken: the step of Python says which
            return False
        nothing: Brought = ChainMap({})
        inputs = self._operands.inputs(op, nothing)
        outputs = self._operands.outputs(op, nothing)
        if inputs is None or outputs is None or nothing:
            return False
        self._operands.made.update((value.name, value) for value in flat(outputs))
        return emitted(self._code, lower, op, inputs, outputs)

    def store(self, name: str, out: Value) -> bool:
        """Copy what the block writes; False if it lies in another order."""
        value = self._operands.made[name]
        if not isinstance(value, Value) or value.channels_last or not shapes.known(value):
            return False
        if value.dtype != out.dtype or value.size != out.size:
            return False
        return shapes.move(self._code, value, out, (out.size,), (0, [1]), (0, [1]))

    def calls(self) -> list[Call] | None:
        """The calls, as a loop takes them; None if an argument is no number."""
        found: dict[Value | Constant, int] = {}
        given = [argument for _, arguments in self._code.calls for argument in arguments]
        for argument in given:
            if isinstance(argument, Value | Constant):
                found.setdefault(argument, len(found))
            elif not isinstance(argument, int | float | np.integer):
                return None
        for place in found:
            if isinstance(place, Value) and place.buffer is not None:
                place.buffer.first = place.buffer.last = -1  # those were calls of the block
        self.places = [self._around.get(place, place) for place in found]
        addresses, _ = unknowns(len(found), 0)
        return [
            (kernel, tuple(addresses[found[a]] if a in found else word_of(a) for a in arguments))
            for kernel, arguments in self._code.calls
        ]
