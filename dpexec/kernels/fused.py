"""Operators that do the work of several, by the calls of these."""

from __future__ import annotations

import inspect
from typing import Any

from dpexec.kernels.lowering import Code, Lowering, Value, lowering
from dpexec.kernels.optimizers import adam, sgd
from dpexec.ops.fused_optimizers import each


def _one_by_one(type: str, one: Lowering) -> None:
    """Lower an operator that updates a list of parameters of one element type."""

    def lower(code: Code, *lists: list[Value], **attrs: Any) -> Any:
        made = [one.function(code, *values, **attrs) for values in each(lists)]
        return made[0]

    lower.__signature__ = inspect.signature(one.function)  # type: ignore[attr-defined]
    lowering(type)(lower)


_one_by_one("fused_adam", adam)
_one_by_one("fused_sgd", sgd)
