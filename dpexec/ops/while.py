"""``while``: a block of operators that is repeated as long as a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.core.dtypes import VarType
from dpexec.ir.opdef import Spec, op, require


def _infer(x: Sequence[Spec], condition: Spec) -> tuple[list[Spec], Spec]:
    """The outputs are what the operators of the body make of them."""
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
)
def while_(
    xp: Any,
    x: list[Any],
    condition: Any,
    *,
    body: Callable[[], Mapping[str, Any]],
    names: Mapping[str, Sequence[str]],
) -> tuple[list[Any], None]:
    """Run the operators of the attribute ``sub_block`` as long as a condition holds.

    They write the condition, and may write other variables around their block; the next round
    sees that. Variables of the block itself are new in every round. Source: Paddle op ``while``.

    Args:
        xp: the array library.
        x: what the operators read; they find it by name.
        condition: bool with one element.
        body: runs them once, and returns what they wrote.
        names: of the variables, by slot.
    """
    (name,) = names["Condition"]
    while bool(condition.reshape(())[()]):
        condition = body().get(name, condition)
    return [], None
