"""Helper for operators that concatenate many arrays."""

from __future__ import annotations

from dpexec.engine.ir.operator import Operator

_MOST = 8


def takes_few(op: Operator) -> bool:
    """Whether it has few inputs: for more, CuPy makes a list of their addresses on the host."""
    return len(op.input_arg_names) <= _MOST
