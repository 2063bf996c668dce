"""``FLAGS_check_nan_inf``: an operator with an infinite or NaN result fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpexec.engine.core.errors import see
from dpexec.engine.core.selected_rows import SelectedRows
from dpexec.engine.ir.operator import Operator

__all__ = ["checking_results"]


def checking_results(call: Callable[[Any], None], op: Operator, xp: Any) -> Callable[[Any], None]:
    """``call``, followed by a check of all outputs of the operator.

    Args:
        call: the bound operator.
        op: the operator.
        xp: ``numpy`` or ``cupy``.

    Returns:
        A call that raises ValueError at the first variable with infinities or NaNs.
    """
    names = list(dict.fromkeys(op.writes))

    def call_and_check(env: Any) -> None:
        call(env)
        for name in names:
            _check(name, env.get(name), xp)

    return call_and_check


def _check(name: str, value: Any, xp: Any) -> None:
    array = value.value if isinstance(value, SelectedRows) else value
    dtype = getattr(array, "dtype", None)
    if dtype is None or dtype.kind != "f" or xp.isfinite(array).all():
        return
    nans, infinities = int(xp.isnan(array).sum()), int(xp.isinf(array).sum())
    problem = (
        f"PreconditionNotMet: find nan or inf in {name}: {nans} nan and {infinities} inf among "
        f"{array.size} numbers (FLAGS_check_nan_inf is set)"
    )
    raise see("an-infinity-or-a-nan", ValueError(problem))
