"""Operators that stand in programs for what the executor does itself, so that no kernel runs."""

from __future__ import annotations

from functools import partial

from dpexec.engine.ir.opdef import op

__all__ = ["executor_op"]

executor_op = partial(op, infer=None, no_grad=True, by_executor=True)
"""Declares one: as :func:`dpexec.engine.ir.opdef.op`; decorates a function that is never called."""
