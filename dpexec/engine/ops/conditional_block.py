"""``conditional_block``: a block that runs if a condition holds, for training and prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import Spec, op, require
from dpexec.engine.ir.roles import EMPTY, GRAD_SUFFIX, grad_name
from dpexec.engine.ops._totals import dense

Locals = Mapping[str, Any]
"""Values of the variables of a body, by name."""


def _infer(
    conditions: Sequence[Spec], inputs: Sequence[Spec], *, is_scalar_condition: bool = False
) -> tuple[list[Spec], Spec]:
    """The specs of the outputs are those that the operators of the body infer."""
    if is_scalar_condition:
        require(len(conditions) == 1, f"a scalar condition is one, not {len(conditions)}")
        cond = conditions[0]
        require(
            cond.dtype == VarType.BOOL and cond.size in (1, -1),
            f"the condition must be bool with one element, but it is {cond}",
        )
    return [], Spec((), kind=VarType.STEP_SCOPES)


def _holds(conditions: Sequence[Any], inputs: Sequence[Any], is_scalar: bool) -> bool:
    if is_scalar:
        return bool(conditions[0].reshape(())[()])
    return all(getattr(value, "size", 1) for value in (*conditions, *inputs))


@op(
    "conditional_block",
    inputs="Cond[] Input?[]",
    outputs="Out?[] Scope?",
    infer=_infer,
    attrs={"skip_eager_deletion_vars": []},
    lazy=True,
    branches=True,
)
def conditional_block(
    xp: Any,
    conditions: list[Any],
    inputs: list[Any],
    *,
    body: Callable[[], Locals],
    is_scalar_condition: bool = False,
) -> tuple[list[Any], Locals | None]:
    """Run the operators of the attribute ``sub_block`` if a condition holds.

    They may write variables of surrounding blocks; if the condition does not hold, these keep their
    values. Variables of the block itself are deleted afterwards, except those that gradients need,
    which ``Scope`` holds. Source: Paddle op ``conditional_block``.

    Args:
        xp: the array library.
        conditions: with ``is_scalar_condition`` a bool with one element; else any arrays, and the
            operators run if neither one of them nor an input is empty.
        inputs: variables that the operators read; they find them by name.
        body: runs the operators.
        is_scalar_condition: the kind of condition.
    """
    return [], body() if _holds(conditions, inputs, is_scalar_condition) else None


@op(
    "conditional_block_infer",
    inputs="Cond[] Input?[]",
    outputs="Out?[] Scope?",
    infer=_infer,
    attrs={"skip_eager_deletion_vars": []},
    lazy=True,
    branches=True,
    no_grad=True,
)
def conditional_block_infer(
    xp: Any,
    conditions: list[Any],
    inputs: list[Any],
    *,
    body: Callable[[], Locals],
    is_scalar_condition: bool = False,
) -> tuple[list[Any], None]:
    """A ``conditional_block`` for prediction: nothing of its block is kept for gradients.

    Source: Paddle op ``conditional_block_infer``. Args: as for ``conditional_block``.
    """
    if _holds(conditions, inputs, is_scalar_condition):
        body()
    return [], None


def _infer_grad(
    conditions: Sequence[Spec],
    inputs: Sequence[Spec],
    outputs: Sequence[Spec],
    d_outputs: Sequence[Spec],
    scope: Spec,
) -> list[Spec]:
    return list(inputs)


@op(
    "conditional_block_grad",
    inputs="Cond[] Input?[] Out?[] Out@GRAD?[] Scope",
    outputs="Input@GRAD?[]",
    infer=_infer_grad,
    lazy=True,
)
def conditional_block_grad(
    xp: Any,
    conditions: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    d_outputs: list[Any],
    scope: Locals,
    *,
    body: Callable[[Locals], Locals],
    names: Mapping[str, Sequence[str]],
    is_scalar_condition: bool = False,
) -> list[Any]:
    """Gradients of what a ``conditional_block`` reads, by the operators of ``sub_block``.

    If the block did not run, they are zero, except that a variable that it would have overwritten
    keeps its gradient (zero in the real Paddle). If a loss was minimized in the block, the
    operators of ``sub_block`` also update parameters. Source: Paddle op ``conditional_block_grad``.
    """
    if not names.get("Input" + GRAD_SUFFIX):  # the body has updates, whose gradients it keeps
        if _holds(conditions, inputs, is_scalar_condition):
            body(scope)
        return []
    if not _holds(conditions, inputs, is_scalar_condition):
        given = [n for n, g in zip(names["Out"], names["Out@GRAD"], strict=True) if g != EMPTY]
        kept = dict(zip(given, d_outputs, strict=True))
        return [
            kept.get(name, None if x is None else xp.zeros_like(x))
            for name, x in zip(names["Input"], inputs, strict=True)
        ]
    made = body(scope)
    return [dense(xp, made.get(grad_name(name))) for name in names["Input"]]
