"""``while``: a block of operators that is repeated as long as a condition holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op, require
from dpexec.engine.ir.roles import EMPTY, grad_name, variable_name
from dpexec.engine.ops._iterations import Course, Iterations, State
from dpexec.engine.ops._rounds import or_zeros, run_rounds

Round = Mapping[str, Any]
"""The values of variables after a round, by name."""


def _infer(x: Sequence[Spec], condition: Spec) -> tuple[list[Spec], Spec]:
    """The specs of the outputs are those that the operators of the body infer."""
    require(
        condition.dtype == VarType.BOOL and condition.size in (1, -1),
        f"the condition must be bool with one element, but it is {condition}",
    )
    return [], Spec((), kind=VarType.STEP_SCOPES)


@op(
    "while",
    inputs="X?[] Condition",
    outputs="Out?[] StepScopes?",
    infer=_infer,
    attrs={"is_test": False, "skip_eager_deletion_vars": []},
    lazy=True,
    host_inputs="Condition",
    repeats="Condition",
    hands_on=True,
)
def while_(
    xp: Any,
    x: list[Any],
    condition: Any,
    *,
    body: Iterations,
    names: Mapping[str, Sequence[str]],
    is_test: bool = False,
    differentiated: bool = False,
) -> tuple[list[Any], Sequence[Round]]:
    """Run the operators of the attribute ``sub_block`` as long as a condition holds.

    They write the condition, and may write other variables of surrounding blocks, which the next
    round reads. Variables of the block itself are new in every round; ``StepScopes`` holds those
    that gradients need. Source: Paddle op ``while``.

    Args:
        xp: the array library.
        x: variables that the operators read; they find them by name.
        condition: bool with one element.
        body: runs the operators once, and returns the variables that they wrote.
        names: names of the variables, by slot.
        is_test: whether no gradients are needed.
        differentiated: whether the program has the gradients of the body.

    Returns:
        No outputs, because the body has written them, and the values after every round.
    """
    (name,) = names["Condition"]
    ran = body.whole(Course(until=name, keeps=differentiated))
    if ran is not None:
        return [], ran.kept
    rounds: list[Round] = []
    while bool(condition.reshape(())[()]):
        made = body.begin()
        condition = made.get(name, condition)
        if differentiated:
            rounds.append(made)
    body.finish()
    return [], rounds


def _infer_grad(
    x: Sequence[Spec], outputs: Sequence[Spec], d_outputs: Sequence[Spec], scopes: Spec
) -> list[Spec]:
    return [spec.replace(lod_level=0) for spec in x]


@op(
    "while_grad",
    inputs="X?[] Out?[] Out@GRAD?[] StepScopes",
    outputs="X@GRAD?[]",
    infer=_infer_grad,
    attrs={"is_test": False, "skip_eager_deletion_vars": []},
    lazy=True,
    hands_on=True,
)
def while_grad(
    xp: Any,
    x: list[Any],
    outputs: list[Any],
    d_outputs: list[Any],
    rounds: Sequence[Round],
    *,
    body: Iterations,
    names: Mapping[str, Sequence[str]],
    original_output_grad: Sequence[str] = (),
) -> list[Any]:
    """Gradients of what a ``while`` reads, by the operators of ``sub_block``, last round first.

    A variable that every round only reads gets the sum of the rounds' gradients. The sum is dense
    even if these are sparse, which the real Paddle refuses. A variable that rounds read and write,
    such as a hidden state, gets the gradient of the first round, to which later rounds contribute;
    the real Paddle gives wrong numbers there. Source: Paddle op ``while_grad``.

    Args:
        xp: the array library.
        x: the variables that the rounds read.
        outputs: the variables that they wrote.
        d_outputs: gradients of some outputs, for their values at the end.
        rounds: the values after every round.
        body: runs the operators for a round, with the gradients of the variables it wrote.
        names: names of the variables, by slot.
        original_output_grad: the names by which the operators find ``d_outputs``.
    """
    wanted = [n for n, grad in zip(names["X"], names["X@GRAD"], strict=True) if grad != EMPTY]
    values = dict(zip((*names["X"], *names["Out"]), (*x, *outputs), strict=True))
    owners = [variable_name(grad) for grad in original_output_grad]
    states = {
        grad: State(first, grad_name(n) if n in wanted else "", n in wanted, n, values[n])
        for grad, n, first in zip(original_output_grad, owners, d_outputs, strict=True)
    }
    added = [name for name in wanted if name not in owners]
    course = Course(
        rounds=len(rounds),
        backwards=True,
        forward=rounds,
        states=states,
        totals=[*map(grad_name, added)],
    )
    ran = run_rounds(xp, body, course)
    found = dict(zip((*added, *owners), (*ran.totals.values(), *ran.states.values()), strict=True))
    return [or_zeros(xp, found.get(n), values[n]) if n in wanted else None for n in names["X"]]
