"""How operators become calls of kernels.

A lowering is called with a :class:`Code` and the operator's inputs and outputs as
:class:`Value` objects, in the order of its slots, and with its attributes; it emits calls of
kernels. It may decline (return False before it emits anything): then the operator runs on NumPy.

    @lowering("relu")
    def relu(code, x, out):
        code.emit(kernels.relu, x.size, x, out)
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpexec.kernels.machine import Kernel

__all__ = ["Buffer", "Code", "Lowering", "Value", "find", "lowering"]

_FAMILIES = ("elementwise", "losses", "optimizers", "products")

Argument = Any  # an int, a float, or a Value, which stands for its address


@dataclass(eq=False)
class Buffer:
    """Memory that values lie in.

    Args:
        nbytes: size.
        first: number of the first call that uses it.
        last: number of the last call that uses it.
        lasting: holds a value that is needed outside of the code.
    """

    nbytes: int
    first: int = -1
    last: int = -1
    lasting: bool = False

    def used_by(self, call: int) -> None:
        """Note a call that uses it."""
        self.first = call if self.first < 0 else self.first
        self.last = call


@dataclass(eq=False)
class Value:
    """An array that code works on.

    Args:
        shape: all dimensions.
        dtype: element type.
        buffer: where it lies; None for an array that the run brings along.
        name: of the variable; ``""`` for scratch memory.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    buffer: Buffer | None = None
    name: str = ""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.size * self.dtype.itemsize

    def same_memory(self, other: Value) -> bool:
        """Whether both are one array."""
        return self is other or (self.buffer is not None and self.buffer is other.buffer)


@dataclass(eq=False)
class Code:
    """Calls of kernels, in order.

    Args:
        calls: kernel and arguments.
    """

    calls: list[tuple[Kernel, Sequence[Argument]]] = field(default_factory=list)

    def emit(self, kernel: Kernel, *arguments: Argument) -> None:
        """Call a kernel: integers, floats and addresses of values."""
        number = len(self.calls)
        for argument in arguments:
            if isinstance(argument, Value) and argument.buffer is not None:
                argument.buffer.used_by(number)
        self.calls.append((kernel, arguments))

    def alias(self, out: Value, source: Value) -> bool:
        """Let an output be the input itself; False if its memory belongs to somebody else."""
        if source.buffer is None:
            return False
        out.buffer = source.buffer
        return True

    def scratch(self, *shape: int, dtype: Any = np.float32) -> Value:
        """Memory that only this operator uses."""
        made = np.dtype(dtype)
        return Value(shape, made, Buffer(math.prod(shape) * made.itemsize))


class Lowering:
    """A function that emits the calls for an operator.

    Args:
        function: see the module; its keyword-only parameters are attributes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        parameters = inspect.signature(function).parameters.values()
        self.attrs = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
        functools.update_wrapper(self, function)

    def __call__(self, code: Code, *values: Any, **attrs: Any) -> Any:
        """Emit the calls; False: the operator must run on NumPy."""
        return self.function(code, *values, **attrs)


_lowerings: dict[str, Lowering] = {}


def lowering(*types: str) -> Callable[[Callable[..., Any]], Lowering]:
    """Make the decorated function the lowering of some operator types.

    Raises:
        ValueError: one of them has a lowering already.
    """

    def decorate(function: Callable[..., Any]) -> Lowering:
        made = Lowering(function)
        for type in types:
            if type in _lowerings:
                raise ValueError(f"operator {type} is lowered twice")
            _lowerings[type] = made
        return made

    return decorate


def find(type: str) -> Lowering | None:
    """The lowering of an operator type, or None."""
    if not _lowerings:
        for family in _FAMILIES:
            importlib.import_module(f"dpexec.kernels.{family}")
    return _lowerings.get(type)
