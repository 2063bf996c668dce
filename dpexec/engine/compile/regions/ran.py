"""The kernels that run the operators of blocks, for pictures of loops.

A region becomes machine code when it first runs, deep inside of an operator's kernel. It registers
the kernels of its operators here, by operator, and pictures look them up later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from dpexec.engine.ir.operator import Operator

if TYPE_CHECKING:
    from dpexec.engine.compile.regions.task import TaskCode
    from dpexec.engine.kernels.machine import Kernel

__all__ = ["called_by", "kernels_of", "note"]

_LONGEST_TABLE = 1024
"""Numbers of a constant among which addresses of kernels are looked for."""

_RAN: WeakKeyDictionary[Operator, Sequence[Kernel]] = WeakKeyDictionary()


def note(code: TaskCode) -> None:
    """Keep which kernels the operators of a block became.

    Args:
        code: the code of a region.
    """
    for nodes, calls in code.kernels(code.steps):
        found = called_by(calls)
        for node in nodes:
            if node.op is not None:
                _RAN[node.op] = found


def kernels_of(op: Operator) -> Sequence[Kernel] | None:
    """The kernels that an operator of a block became last; None if it became none.

    Args:
        op: the operator.
    """
    return _RAN.get(op)


def called_by(calls: Sequence[tuple[Kernel, Sequence[Any]]]) -> list[Kernel]:
    """The kernels of some calls, and the kernels whose addresses they get as arguments.

    Args:
        calls: kernels and arguments.
    """
    from dpexec.engine.kernels.lowering import Constant
    from dpexec.engine.kernels.machine import Kernel, at_address

    found: dict[Kernel, None] = {}
    for kernel, arguments in calls:
        found[kernel] = None
        for argument in arguments:
            if isinstance(argument, Kernel):
                found[argument] = None
                continue
            if type(argument) is int:
                words: Sequence[int] = (argument,)
            elif isinstance(argument, Constant):
                words = _words(argument.array)
            else:
                continue
            found.update((at_address[word], None) for word in words if word in at_address)
    return list(found)


def _words(array: np.ndarray[Any, Any]) -> list[int]:
    """The numbers of a constant that may be addresses of kernels."""
    if array.dtype != np.int64 or array.size > _LONGEST_TABLE:
        return []
    words: list[int] = array.ravel().tolist()
    return words
