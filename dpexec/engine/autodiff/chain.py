"""The chain rule on operators: which operators compute the gradients, in which order.

There are four steps. :func:`relevant_ops` finds the operators between inputs and targets.
:func:`chain_rule` asks each of them, last first, for its gradient operators. :func:`add_up` sums
gradients with several contributions. :func:`fill_missing` supplies zeros for outputs without a
gradient. Names and order are those of Paddle 1.8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dpexec.engine.autodiff.overwritten import Overwritten
from dpexec.engine.core.errors import MissingGradientError, see
from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir import opdef, roles
from dpexec.engine.ir.block import Block
from dpexec.engine.ir.callsite import CallSite
from dpexec.engine.ir.opdef import GradContext
from dpexec.engine.ir.operator import Operator, op_error

__all__ = ["PendingOp", "add_up", "chain_rule", "fill_missing", "relevant_ops"]


@dataclass
class PendingOp:
    """An operator of the backward pass that is not in a block yet: its names may still change."""

    type: str
    inputs: dict[str, list[str]]
    outputs: dict[str, list[str]]
    attrs: dict[str, Any] = field(default_factory=dict)
    callsite: CallSite | None = None

    def reads(self) -> Iterable[str]:
        """All names read."""
        return [name for names in self.inputs.values() for name in names]

    def writes(self) -> Iterable[str]:
        """All names written."""
        return [n for names in self.outputs.values() for n in roles.present(names)]


def relevant_ops(
    ops: Iterable[Operator], targets: set[str], inputs: set[str], no_grad: set[str]
) -> list[Operator]:
    """The operators through which gradients of ``targets`` flow, in program order.

    Args:
        ops: all operators, in program order.
        targets: names of the variables that are differentiated.
        inputs: names of the variables whose gradients are wanted; empty for all.
        no_grad: names of variables at which gradients stop.
    """
    ops = [op for op in ops if op.definition.make_undo or not op.definition.no_grad]
    if inputs:
        reached, dependent = set(inputs), []
        for op in ops:
            if not reached.isdisjoint(op.input_arg_names):
                reached.update(set(op.output_arg_names) - no_grad)
                dependent.append(op)
        ops = dependent
    wanted, path = set(targets), []
    for op in reversed(ops):
        if not wanted.isdisjoint(op.output_arg_names):
            wanted.update(set(op.input_arg_names) - no_grad)
            path.append(op)
    return path[::-1]


def chain_rule(
    path: list[Operator],
    have: set[str],
    no_grad: set[str],
    grad_of: Callable[[str], str],
) -> list[PendingOp]:
    """The gradient operators of ``path``, last operator first.

    Args:
        path: operators in program order.
        have: initial gradients; new gradients are added to it.
        no_grad: names of variables at which gradients stop.
        grad_of: returns the name of a variable's gradient.

    Raises:
        MissingGradientError: an operator of ``path`` has no gradient.
    """
    steps: list[PendingOp] = []
    overwritten = Overwritten(path[0].block) if path else None
    for op in reversed(path):
        flowing = {
            slot: [_grad(name, grad_of) for name in names] for slot, names in op.outputs.items()
        }
        make_grad = op.definition.make_undo
        if make_grad is None:
            if have.isdisjoint(name for names in flowing.values() for name in names):
                continue
            make_grad = op.definition.make_grad
        wanted = {
            slot: ["" if name in no_grad else _grad(name, grad_of) for name in names]
            for slot, names in op.inputs.items()
        }
        if make_grad is None:
            _require_constant_inputs(op, no_grad)
            continue
        for grad in make_grad(GradContext(op, flowing, wanted, no_grad, have)):
            definition = opdef.get(grad.type)
            step = PendingOp(
                grad.type,
                _without_blanks(grad.inputs, definition.inputs),
                _without_blanks(grad.outputs, definition.outputs),
                {**_origin_attrs(op), **grad.attrs},
                op.callsite,
            )
            if step.writes() and (op.definition.make_undo or _receives(step, flowing, have)):
                if overwritten:
                    overwritten.keep(op, step.inputs)
                steps.append(step)
                have.update(step.writes())
    return steps


def _receives(step: PendingOp, flowing: Mapping[str, list[str]], have: set[str]) -> bool:
    """Whether there is one of the gradients of its operator's outputs that a step reads, if any.

    Gradients of some outputs are not read, such as that of ``Cell`` of ``lstm``. A parameter that
    only these depend on has no gradient, as in Paddle: zeros would have it decay.
    """
    read = {name for names in flowing.values() for name in names}.intersection(step.reads())
    return not read or not have.isdisjoint(read)


def _grad(name: str, grad_of: Callable[[str], str]) -> str:
    return "" if name == roles.EMPTY else grad_of(name)


def _origin_attrs(op: Operator) -> dict[str, Any]:
    return {name: op.attrs[name] for name in (roles.NAME_SCOPE, roles.DEVICE) if name in op.attrs}


def _without_blanks(
    given: Mapping[str, list[str]], slots: Iterable[opdef.Slot]
) -> dict[str, list[str]]:
    """Drop unwanted gradients; in lists, where the position counts, use a placeholder."""
    many = {slot.name for slot in slots if slot.many}
    return {
        slot: [name or roles.EMPTY for name in names if name or slot in many]
        for slot, names in given.items()
    }


def _require_constant_inputs(op: Operator, no_grad: set[str]) -> None:
    """Raise if an operator without gradient reads anything but constants."""
    varying: set[str] = set()
    made: set[str] = set()
    for other in op.block.ops:
        names = set(other.input_arg_names) - no_grad - (made - varying)
        if other is op:
            break
        made.update(other.output_arg_names)
        if names and not other.definition.no_grad:
            varying.update(set(other.output_arg_names) - no_grad)
    if names:
        problem = (
            "it has no gradient, but one is asked for through its inputs "
            f"{', '.join(sorted(names))}; set their stop_gradient to True if none is meant to flow"
        )
        error = MissingGradientError(str(op_error(op, problem, op.input_specs())))
        raise see("a-gradient-of-an-operator-that-has-none", error)


def add_up(
    steps: list[PendingOp], given: Mapping[str, list[str]], origin: Mapping[str, str], block: Block
) -> list[PendingOp]:
    """Rename the contributions to each gradient, and add a ``sum`` of them.

    The sum is inserted before the first step that reads the gradient, or at the end.

    Args:
        steps: the steps in order; contributions are renamed in place.
        given: maps gradients that the user supplies to the variables that hold them.
        origin: maps each gradient to its variable.
        block: the block that will get the steps.
    """
    gradients = _Contributions(given, block)
    for step in steps:
        for names in step.inputs.values():
            names[:] = [gradients.read(name, step.callsite) for name in names]
        gradients.steps.append(step)
        for names in (step.outputs[slot] for slot in sorted(step.outputs)):
            for position, name in enumerate(names):
                if name in origin:
                    gradients.write(names, position)
    gradients.finish(steps[-1].callsite if steps else None)
    return gradients.steps


class _Contributions:
    """The contributions to each gradient while the steps are visited in order.

    Args:
        given: maps gradients that the user supplies to the variables that hold them.
        block: the block that will get the steps.

    Attributes:
        steps: the steps visited so far, with the sums.
    """

    def __init__(self, given: Mapping[str, list[str]], block: Block) -> None:
        self.steps: list[PendingOp] = []
        self._number = block.idx if block.forward_block_idx < 0 else block.forward_block_idx
        self._supplied = list(given.values())
        self._parts: dict[str, list[tuple[list[str], int]]] = {
            grad: [(variables, position) for position in range(len(variables))]
            for grad, variables in given.items()
        }
        self._read_as: dict[str, str] = {}
        self._counts: Counter[str] = Counter()

    def read(self, name: str, callsite: CallSite | None) -> str:
        """The name that a step reads for a variable; for a gradient, the sum of contributions."""
        if name in self._parts and name not in self._read_as:
            self._sum(name, callsite)
        return self._read_as.get(name, name)

    def write(self, names: list[str], position: int) -> None:
        """Note that a step contributes to a gradient, under a name that may change."""
        name = names[position]
        if self._read_as.pop(name, None):  # read already: the parts so far made an older value
            self._parts[name] = []
        self._parts.setdefault(name, []).append((names, position))

    def finish(self, callsite: CallSite | None) -> None:
        """Sum the gradients that no step reads."""
        for name in self._parts:
            self.read(name, callsite)

    def _sum(self, grad: str, callsite: CallSite | None) -> None:
        """Rename the contributions to a gradient and sum them, if there are several."""
        parts = self._parts[grad]
        if len(parts) == 1:
            ((names, position),) = parts
            self._read_as[grad] = names[position]
            return
        for names, position in parts:
            if not any(names is supplied for supplied in self._supplied):
                names[position] = f"{grad}@RENAME@block{self._number}@{self._counts[grad]}"
                self._counts[grad] += 1
        found = [names[position] for names, position in parts]
        self._read_as[grad] = grad
        attrs = {"use_mkldnn": False}
        self.steps.append(PendingOp("sum", {"X": found}, {"Out": [grad]}, attrs, callsite))


def fill_missing(
    steps: list[PendingOp], origin: Mapping[str, str], given: Iterable[str] = ()
) -> list[PendingOp]:
    """Insert ``fill_zeros_like`` before steps that need a gradient without contributions.

    Zeros for the gradient of a gradient have the shape of the forward variable.

    Args:
        steps: the steps in order.
        origin: maps each gradient to its variable.
        given: gradients that are supplied from outside.
    """
    filled: list[PendingOp] = []
    have = set(given)
    for step in steps:
        slots = (step.inputs[slot] for slot in _needed(step))
        for name in (name for names in slots for name in names):
            if name in origin and name not in have:
                like = roles.variable_name(origin[name])
                zeros = PendingOp("fill_zeros_like", {"X": [like]}, {"Out": [name]})
                zeros.callsite = step.callsite
                filled.append(zeros)
                have.add(name)
        filled.append(step)
        have.update(step.writes())
    return filled


def _needed(step: PendingOp) -> list[str]:
    """The input slots of a step that must have values."""
    definition = opdef.get(step.type)
    spared = {slot.name for slot in definition.inputs if definition.lazy and slot.optional}
    return sorted(step.inputs.keys() - spared)
