"""``delete_var`` and ``fake_init``: delete variables, or leave them without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import op
from dpexec.engine.ops._by_executor import executor_op


@op("delete_var", inputs="X[]", outputs="", infer=None, sparse=("X",), lazy=True, no_grad=True)
def delete_var(xp: Any, x: Sequence[Any]) -> tuple[()]:
    """Delete the values of variables.

    Temporary variables lose their values after a step anyway. The scope drops persistable ones at
    the end of the run, unless a later operator writes them (``Engine``). Source: Paddle op
    ``delete_var``.
    """
    return ()


@executor_op("fake_init", inputs="", outputs="Out", attrs={"shape": []})
def fake_init(xp: Any) -> None:
    """A variable without a value in this process; reading it is an error.

    Startup programs of trainers use it for tables on servers. Source: Paddle op ``fake_init``.
    """
