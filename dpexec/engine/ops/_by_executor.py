"""Operators without a kernel: the executor itself performs them."""

from __future__ import annotations

from functools import partial

from dpexec.engine.ir.opdef import op

__all__ = ["executor_op"]

executor_op = partial(op, infer=None, no_grad=True, by_executor=True)
"""Declares such an operator, like :func:`dpexec.engine.ir.opdef.op`; decorates a dummy function."""
