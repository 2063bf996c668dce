"""The operators ``feed`` and ``fetch``, which list the inputs and outputs of inference models.

The executor feeds and fetches itself, so no kernel runs. Source: Paddle ops ``feed``, ``fetch``.
"""

from __future__ import annotations

from typing import Any

from dpexec.engine.ops._by_executor import executor_op


@executor_op("feed", inputs="X", outputs="Out", attrs={"col": 0})
def feed(xp: Any, x: Any) -> None:
    """Value number ``col`` of a run's feeds."""


@executor_op("fetch", inputs="X", outputs="Out", attrs={"col": 0})
def fetch(xp: Any, x: Any) -> None:
    """Value number ``col`` of a run's results."""
