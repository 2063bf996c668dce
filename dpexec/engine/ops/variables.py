"""``delete_var`` and ``fake_init``: delete variables, or leave them without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import op
from dpexec.engine.ops._by_executor import executor_op


@op("delete_var", inputs="X[]", outputs="", infer=None, sparse=("X",), lazy=True, no_grad=True)
def delete_var(xp: Any, x: Sequence[Any]) -> tuple[()]:
    """Variables have no value any more.

    Temporary ones have none behind a step anyway. The scope forgets persistable ones at the end of
    the run, unless a later operator writes them (``Engine``). Source: Paddle op ``delete_var``.
    """
    return ()


@executor_op("fake_init", inputs="", outputs="Out", attrs={"shape": []})
def fake_init(xp: Any) -> None:
    """A variable that others hold: it gets no value here, and reading it is an error.

    Startup programs of trainers have it for tables that lie on servers. Source: Paddle op
    ``fake_init``.
    """
