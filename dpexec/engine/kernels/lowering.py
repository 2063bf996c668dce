"""How operators become calls of kernels.

A lowering is called with a :class:`Code` and the operator's inputs and outputs as
:class:`Value` objects, in the order of its slots, and with its attributes; it emits calls of
kernels. It may decline (return False before it emits anything): then the operator runs on NumPy.

    @lowering("relu", layout="pointwise")
    def relu(code, x, out):
        code.emit(kernels.relu, x.size, x, out)

The memory layout of images may be channels-last (``Value.channels_last``) although their shape is
``(batch, channels, height, width)``. The declared ``layout`` says what a lowering can handle:

- ``plain`` (the default): all inputs have the layout of their shapes.
- ``pointwise``: if all inputs have the same shape, they have the same layout, whichever it is, and
  outputs of that shape get it, too; else all inputs have the layout of their shapes.
- ``own``: the lowering requests layouts with :meth:`Code.laid` and marks those of its outputs.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass, field
from dpexec.engine.ir.signature import keyword_only
from dpexec.engine.kernels.implementations import claim
from dpexec.engine.kernels.values import (
    Buffer,
    Constant,
    Offsets,
    Packed,
    Ragged,
    Sized,
    Sparse,
    Value,
)

if TYPE_CHECKING:  # lowerings can be declared without numba
    from dpexec.engine.kernels.machine import Kernel

__all__ = [
    "Buffer",
    "Code",
    "Constant",
    "Lowering",
    "Offsets",
    "Packed",
    "Ragged",
    "Sized",
    "Sparse",
    "Value",
    "flat",
    "keywords",
    "lowering",
]

Argument = Any
"""An argument of a kernel: an int (or an object with ``int()``), a float, a Size or Quotient, a
Value or Kernel, which stands for its address, a Sized, or a function that is called with the
device's Shard at the begin of a run and returns the number; such a function must not use sizes."""
Layout = Literal["plain", "pointwise", "own"]


@dataclass(eq=False)
class Code:
    """Calls of kernels, in order.

    Args:
        calls: kernel and arguments.
        dying: buffers of the current operator's inputs that no later operator reads.
        halves: matrix products round their operands to bfloat16.
        packed: variables that nobody changes, and where they lie in other layouts; None: there may
            be no such variables.
        rounded: values that were rounded, each with the result.
        bias: the bias that the current operator, a matrix product, adds to every row.
        relu: whether the current operator, a batch norm, also applies the relu after it.
        clipped: the result of that relu, if the current operator also computes its gradient.
    """

    calls: list[tuple[Kernel, Sequence[Argument]]] = field(default_factory=list)
    dying: set[Buffer] = field(default_factory=set)
    halves: bool = False
    packed: Packed | None = None
    rounded: dict[Value, Value] = field(default_factory=dict)
    bias: Value | None = None
    relu: bool = False
    clipped: Value | None = None
    _copies: dict[Value, Value] = field(default_factory=dict)
    _copied: dict[Buffer, Value] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """How many threads may work on a call of a kernel."""
        return 1 if self.packed is None else self.packed.threads

    def emit(self, kernel: Kernel, *arguments: Argument) -> None:
        """Call a kernel: integers, floats and addresses of values.

        Raises:
            TypeError: the number of arguments is wrong, or an argument is None, for instance an
                output that the operator lacks.
        """
        kernel.check(arguments)
        for argument in arguments:
            if isinstance(argument, Value):
                self.make(argument)
        if kernel.parts and self.packed is not None:
            from dpexec.engine.kernels import divided

            kernel, arguments = divided.divided_among(self.packed, kernel, arguments)
        number = len(self.calls)
        for argument in arguments:
            if isinstance(argument, Value) and argument.buffer is not None:
                argument.buffer.used_by(number)
        self.calls.append((kernel, arguments))

    @contextlib.contextmanager
    def along(
        self, bias: Value | None = None, relu: bool = False, clipped: Value | None = None
    ) -> Iterator[None]:
        """Let the operator that is lowered inside the block do some work of its neighbour."""
        self.bias, self.relu, self.clipped = bias, relu, clipped
        try:
            yield
        finally:
            self.bias, self.relu, self.clipped = None, False, None

    def alias(self, out: Value, source: Value) -> bool:
        """Let an output share the memory of an input; False if it is not ours, or too small."""
        if source.buffer is None or source.buffer.nbytes < out.nbytes:
            return False
        self.make(source)
        out.buffer, out.channels_last = source.buffer, source.channels_last
        return True

    def reuse(self, out: Value, source: Value) -> bool:
        """Let an output overwrite an input that is not read later, if the sizes are equal."""
        if source.buffer not in self.dying or source.buffer.nbytes != out.nbytes:
            return False
        self.dying.remove(source.buffer)
        out.buffer = source.buffer
        original = self._copied.pop(source.buffer, None)
        if original is not None:  # the buffer was that of a copy: later readers need another one
            self._copies.pop(original, None)
        return True

    def laid(self, value: Value, channels_last: bool) -> Value:
        """A value in channels-last layout, or in the layout of its shape.

        Returns:
            The value itself, or a copy that is made as soon as a kernel uses it.
        """
        if value.channels_last == channels_last or not value.has_planes:
            return value
        if value not in self._copies:
            buffer = Buffer(value.nbytes)
            self._copies[value] = Value(
                value.shape, value.dtype, buffer, value.name, channels_last, value
            )
            self._copied[buffer] = value
        return self._copies[value]

    def make(self, copy: Value) -> None:
        """Make a copy now, if it is one of :meth:`laid` that no kernel has used yet."""
        source, copy.source = copy.source, None
        if source is not None:
            from dpexec.engine.kernels import layouts

            turn = layouts.turn_octets if source.dtype.itemsize == 1 else layouts.turn
            batch, channels = source.shape[:2]
            sizes = (channels, math.prod(source.shape[2:]))
            self.emit(turn, batch, *(sizes if copy.channels_last else sizes[::-1]), source, copy)

    def changed(self, value: Value) -> None:
        """Forget copies of a value that was updated in place."""
        self._copies.pop(value, None)
        self.rounded.pop(value, None)

    def scratch(self, *shape: int, dtype: Any = np.float32) -> Value:
        """Memory that only this operator uses."""
        made = np.dtype(dtype)
        return Value(shape, made, Buffer(math.prod(shape) * made.itemsize))


class Lowering:
    """A function that emits the calls for an operator.

    Args:
        function: the function, see the module's documentation. Its keyword-only parameters are
            attributes; ``rng`` is a function that returns the operator's RandomStream for a shard.
        layout: the supported layouts of images, see the module's documentation.
        attrs: names of attributes that it takes as ``**attrs``.
        ragged: names of slots that may be :class:`Ragged`.
        renews: names of slots of results that may get new memory, see :func:`lowering`.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        layout: Layout = "plain",
        attrs: Sequence[str] = (),
        ragged: Sequence[str] = (),
        renews: Sequence[str] = (),
    ) -> None:
        self.function = function
        self.layout = layout
        self.ragged, self.renews = ragged, renews
        self.attrs = list(dict.fromkeys((*keywords(function), *attrs)))
        functools.update_wrapper(self, function)

    def __call__(
        self,
        code: Code,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        attrs: Mapping[str, Any],
    ) -> Any:
        """Emit the calls; False: the operator must run on NumPy."""
        if self.layout != "own":
            values = list(flat(inputs))
            last = self.layout == "pointwise" and any(v.channels_last for v in values)
            last = last and all(v.shape == values[0].shape for v in values)
            inputs = [_each(item, lambda value: code.laid(value, last)) for item in inputs]
            for value in flat(outputs):
                if last and value.shape == values[0].shape:
                    value.channels_last = value.has_planes
        return self.function(code, *inputs, *outputs, **attrs)


def keywords(function: Callable[..., Any]) -> list[str]:
    """The names of a function's keyword-only parameters."""
    return list(keyword_only(function))


def flat(items: Iterable[Any]) -> Iterable[Any]:
    """All values of some slots."""
    for item in items:
        if isinstance(item, list):
            yield from (value for value in item if value is not None)
        elif item is not None:
            yield item


def _each(item: Any, change: Callable[[Value], Value]) -> Any:
    if isinstance(item, list):
        return [value and change(value) for value in item]
    return item and change(item)


def lowering(
    *types: str,
    layout: Layout = "plain",
    sparse: bool = False,
    attrs: Sequence[str] = (),
    ragged: Sequence[str] = (),
    renews: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Lowering]:
    """Make the decorated function the lowering of some operator types.

    The function ``lower(code, *inputs, *outputs, **attributes)`` calls ``code.emit(kernel,
    *arguments)`` for each kernel to call, or returns False: then the operator runs on NumPy.

    Args:
        types: the operator types.
        layout: which memory layouts of images the function supports: ``"plain"``: axes in the
            order of the shape; ``"pointwise"``: any, if all inputs have the same;
            ``"own"``: it chooses them with ``code.laid``.
        sparse: whether it is for sparse gradients, and only for them.
        attrs: names of attributes that the function takes as ``**attrs``.
        ragged: names of slots whose number of rows may be known in the run only.
        renews: names of slots of results that are declared to overwrite an input, and get new
            memory where this must keep its values, as for a kernel that may refuse others.

    Returns:
        A decorator, whose result is the :class:`Lowering`.

    Raises:
        ValueError: a type has another lowering.

    Example:
        >>> from dpexec.extend import Count, Floats, kernel, lowering
        >>> @kernel
        ... def doubled(n: Count, x: Floats, out: Floats) -> int:
        ...     for i in range(n):
        ...         out[i] = 2 * x[i]
        ...     return 0
        >>> @lowering("twice_of")  # an operator that was declared by op
        ... def lower(code, x, out):
        ...     if x.dtype != "float32":
        ...         return False  # then it runs on NumPy
        ...     code.emit(doubled, x.size, x, out)
    """

    def decorate(function: Callable[..., Any]) -> Lowering:
        made = Lowering(function, layout, attrs, ragged, renews)
        claim(types, "code", made, function, sparse)
        return made

    return decorate
