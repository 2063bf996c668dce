"""``recurrent``: a block of operators that runs once per time step, and its gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op, require
from dpexec.engine.ir.roles import grad_name
from dpexec.engine.ops._iterations import Iterations
from dpexec.engine.ops._totals import Deferred

Values = Mapping[str, Any]
"""Values of the variables of a body, by name."""

_ATTRS = {"has_states": False, "skip_eager_deletion_vars": [], "is_train": True}


def _infer(
    inputs: Sequence[Spec],
    initial_states: Sequence[Spec],
    parameters: Sequence[Spec],
    *,
    ex_states: Sequence[str],
    states: Sequence[str],
    has_states: bool = False,
) -> tuple[list[Spec], Spec]:
    """The specs of the outputs are those that the operators of the body infer."""
    require(bool(inputs), "a recurrent network needs an input that it takes step by step")
    lengths = {spec.shape[0] if spec.rank else 0 for spec in inputs} - {-1}
    require(
        len(lengths) < 2 and 0 not in lengths,
        "the inputs must have the same number of steps, one or more, along axis 0, not "
        + " and ".join(str(spec) for spec in inputs),
    )
    require(
        len(initial_states) == len(ex_states) == len(states),
        f"there are {len(initial_states)} initial states, {len(ex_states)} variables for the "
        f"state before a step, and {len(states)} for the state after it",
    )
    require(
        has_states or not states,
        f"has_states must be set: there are {len(initial_states)} initial states",
    )
    return [], Spec((), kind=VarType.STEP_SCOPES)


@op(
    "recurrent",
    inputs="inputs[] initial_states?[] parameters?[]",
    outputs="outputs[] step_scopes",
    infer=_infer,
    attrs=_ATTRS,
    stacks=True,
)
def recurrent(
    xp: Any,
    inputs: list[Any],
    initial_states: list[Any],
    parameters: list[Any],
    *,
    body: Iterations,
    names: Mapping[str, Sequence[str]],
    differentiated: bool = False,
    ex_states: Sequence[str],
    states: Sequence[str],
    reverse: bool = False,
) -> tuple[list[Any], list[Values] | None]:
    """Run the operators of the attribute ``sub_block`` once per step, with states of the last step.

    Inside the block, an input's name denotes its slice for the step, and an output's name denotes
    its value for the step; these values are stacked. Source: Paddle op ``recurrent``.

    Args:
        xp: the array library.
        inputs: ``(steps, ...)`` each.
        initial_states: the states before the first step.
        parameters: other variables that the operators read; they find them by name.
        body: runs the operators once.
        names: names of the variables, by slot.
        differentiated: whether gradients are computed through it.
        ex_states: names of the states before a step, in the block.
        states: names of the states after a step.
        reverse: whether the last step comes first.

    Returns:
        The outputs, ``(steps, ...)`` each, and the values of every step that gradients need.
    """
    count = len(inputs[0])
    memories = dict(zip(ex_states, initial_states, strict=True))
    scopes: list[Values] = [{}] * count
    stacks: dict[str, _Stack] = {name: _Stack(xp, count, body) for name in names["outputs"]}
    for step in _order(count, reverse):
        slices = {name: x[step] for name, x in zip(names["inputs"], inputs, strict=True)}
        made = body.begin(given=memories | slices)
        if differentiated:
            scopes[step] = made
        for name, stack in stacks.items():
            stack.put(step, made[name])
        memories = {name: made[state] for name, state in zip(ex_states, states, strict=True)}
    body.finish()
    return [stack.whole for stack in stacks.values()], scopes if differentiated else None


def _order(count: int, reverse: bool) -> Iterable[int]:
    return range(count)[::-1] if reverse else range(count)


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


def _infer_grad(
    inputs: Sequence[Spec],
    initial_states: Sequence[Spec],
    parameters: Sequence[Spec],
    *_: Any,
) -> tuple[Sequence[Spec], ...]:
    return inputs, initial_states, parameters


@op(
    "recurrent_grad",
    inputs="inputs[] initial_states?[] parameters?[] outputs?[] outputs@GRAD?[] step_scopes "
    "step_scopes@GRAD?",
    outputs="inputs@GRAD?[] initial_states@GRAD?[] parameters@GRAD?[]",
    infer=_infer_grad,
    attrs=_ATTRS,
    lazy=True,
)
def recurrent_grad(
    xp: Any,
    inputs: list[Any],
    initial_states: list[Any],
    parameters: list[Any],
    outputs: list[Any],
    d_outputs: list[Any],
    scopes: Sequence[Values],
    d_scopes: Any,
    *,
    body: Iterations,
    names: Mapping[str, Sequence[str]],
    needs: tuple[Sequence[bool], ...],
    ex_states: Sequence[str] = (),
    states: Sequence[str] = (),
    reverse: bool = False,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Gradients of what ``recurrent`` reads, by the operators of ``sub_block``, last step first.

    Gradients of parameters are added up step by step. Source: Paddle op ``recurrent_grad``.
    """
    flowing = {
        grad_name(name): d_output
        for name, d_output in zip(names["outputs"], d_outputs, strict=True)
        if d_output is not None
    }
    of_inputs, _, of_parameters = needs
    inputs_wanted = zip(names["inputs"], of_inputs, strict=False)
    stacks = {n: _Stack(xp, len(scopes), body) for n, is_wanted in inputs_wanted if is_wanted}
    parameters_wanted = zip(names.get("parameters", ()), of_parameters, strict=False)
    sums = {n: body.total(xp, grad_name(n)) for n, is_wanted in parameters_wanted if is_wanted}
    d_states: dict[str, Any] = {}
    for step in _order(len(scopes), not reverse):
        given = {name: d_output[step] for name, d_output in flowing.items()}
        made = body.begin(scopes[step], given | d_states)
        for name, stack in stacks.items():
            stack.put(step, made[grad_name(name)])
        d_states = {
            grad_name(state): made[grad_name(before)]
            for state, before in zip(states, ex_states, strict=True)
            if grad_name(before) in made
        }
    body.finish()
    d_initial = [
        d_states.get(grad_name(state), xp.zeros_like(initial))
        for state, initial in zip(states, initial_states, strict=True)
    ]
    return (
        [stacks[name].whole if name in stacks else None for name in names["inputs"]],
        d_initial,
        [sums[name].whole if name in sums else None for name in names.get("parameters", ())],
    )
