"""Operators that lay many arrays side by side."""

from __future__ import annotations

from dpexec.engine.ir.operator import Operator

_MOST = 8


def takes_few(op: Operator) -> bool:
    """Whether it has so few inputs that CuPy makes no list of their addresses on the host."""
    return len(op.input_arg_names) <= _MOST
