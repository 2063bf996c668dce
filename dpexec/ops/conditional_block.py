"""``conditional_block``: a block of operators that runs if a condition holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.core.dtypes import VarType
from dpexec.ir.opdef import Spec, op, require


def _infer(
    conditions: Sequence[Spec], inputs: Sequence[Spec], *, is_scalar_condition: bool = False
) -> tuple[list[Spec], None]:
    """The outputs are what the operators of the body make of them."""
    if is_scalar_condition:
        require(len(conditions) == 1, f"a scalar condition is one, not {len(conditions)}")
        cond = conditions[0]
        require(
            cond.dtype == VarType.BOOL and cond.size in (1, -1),
            f"the condition must be bool with one element, but it is {cond}",
        )
    return [], None


@op(
    "conditional_block",
    inputs="Cond[] Input?[]",
    outputs="Out?[] Scope?",
    infer=_infer,
    attrs={"skip_eager_deletion_vars": []},
)
def conditional_block(
    xp: Any,
    conditions: list[Any],
    inputs: list[Any],
    *,
    body: Any,
    is_scalar_condition: bool = False,
) -> None:
    """Run the operators of the attribute ``sub_block`` if a condition holds.

    What they write of the variables around their block lands there; if the condition does not
    hold, those keep their values. Variables of their own block are gone afterwards.

    Args:
        xp: the array library.
        conditions: ``is_scalar_condition``: a bool with one element; else any arrays, and the
            operators run if none of them is empty.
        inputs: what the operators read; they find it by name.
        body: runs them.
        is_scalar_condition: which kind of condition.

    Source: Paddle op ``conditional_block``.
    """
    if is_scalar_condition:
        holds = bool(conditions[0].reshape(())[()])
    else:
        holds = all(condition.size for condition in conditions)
    if holds:
        body()
