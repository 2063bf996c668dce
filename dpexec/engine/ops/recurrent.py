"""``recurrent``: a block of operators that runs once per time step, and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op, require
from dpexec.engine.ir.roles import grad_name
from dpexec.engine.ops._iterations import Course, Iterations, State
from dpexec.engine.ops._rounds import run_rounds

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
) -> tuple[list[Any], Sequence[Values] | None]:
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
    initial = zip(ex_states, initial_states, states, strict=True)
    course = Course(
        rounds=len(inputs[0]),
        backwards=reverse,
        keeps=differentiated,
        slices=dict(zip(names["inputs"], inputs, strict=True)),
        states={before: State(first, after, needed=True) for before, first, after in initial},
        stacks=names["outputs"],
    )
    ran = run_rounds(xp, body, course)
    return [ran.stacks[name] for name in names["outputs"]], ran.kept if differentiated else None


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
    wanted = [n for n, is_wanted in zip(names["inputs"], of_inputs, strict=False) if is_wanted]
    added = zip(names.get("parameters", ()), of_parameters, strict=False)
    sought = [n for n, is_wanted in added if is_wanted]
    pairs = zip(states, ex_states, strict=True)
    course = Course(
        rounds=len(scopes),
        backwards=not reverse,
        forward=scopes,
        slices=flowing,
        states={grad_name(state): State(None, grad_name(before)) for state, before in pairs},
        stacks=[*map(grad_name, wanted)],
        totals=[*map(grad_name, sought)],
    )
    found = run_rounds(xp, body, course)
    return (
        [found.stacks.get(grad_name(name)) for name in names["inputs"]],
        [
            xp.zeros_like(initial) if d_initial is None else d_initial
            for initial, d_initial in zip(initial_states, found.states.values(), strict=True)
        ],
        [found.totals.get(grad_name(name)) for name in names.get("parameters", ())],
    )
