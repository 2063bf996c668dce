"""Operators that change shape or order of elements: without a copy if possible, else with one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpexec.engine.kernels.generate import compiled, single
from dpexec.engine.kernels.lowering import Code, Constant, Value, lowering
from dpexec.engine.kernels.strides import OUTER, merged, strides

__all__ = ["clear", "duplicate", "move"]

_MOVE = """\
def move_{kind}(
    n0: Count, n1: Count, n2: Count, n: Count,
    x: {kind}, i0: Count, i1: Count, i2: Count, i3: Count, i4: Count,
    out: {kind}, k0: Count, k1: Count, k2: Count, k3: Count, k4: Count,
):
    for a in range(n0):
        for b in range(n1):
            for c in range(n2):
                i = i0 + a * i1 + b * i2 + c * i3
                k = k0 + a * k1 + b * k2 + c * k3
                if i4 == 1 and k4 == 1:
                    for d in range(n):
                        out[k + d] = x[i + d]
                elif i4 == 0 and k4 == 1:
                    for d in range(n):
                        out[k + d] = x[i]
                else:
                    for d in range(n):
                        out[k + d * k4] = x[i + d * i4]
    return 0
"""
_FILL = """\
def fill_{kind}(n: Count, out: {kind}, value: {value}):
    for i in range(n):
        out[i] = value
    return 0
"""
_WIDEN = compiled(
    "widen",
    """\
def widen(given: Count, n: Count, x: Floats, out: Floats):
    for i in range(given):
        out[i] = x[i]
    for i in range(given, n):
        out[i] = zero
    return 0
""",
)
_KINDS = {"float32": "Floats", "int32": "Words", "int64": "Integers", "bool": "Octets"}
_PARTS = ";".join(
    f"{size}:out*k{axis} x*i{axis}" for axis, size in enumerate(("n0", "n1", "n2", "n"), 1)
)
_MOVES = {d: compiled(f"move_{k}", _MOVE.format(kind=k), parts=_PARTS) for d, k in _KINDS.items()}
_FILLS = {
    "float32": compiled("fill_Floats", _FILL.format(kind="Floats", value="Number")),
    "int32": compiled("fill_Words", _FILL.format(kind="Words", value="Count")),
    "int64": compiled("fill_Integers", _FILL.format(kind="Integers", value="Count")),
    "bool": compiled("fill_Octets", _FILL.format(kind="Octets", value="Count")),
}
Place = tuple[int, Sequence[int]]


def known(*values: Value) -> bool:
    """Whether there are kernels for the element types of all values."""
    return all(value.dtype.name in _KINDS for value in values)


def move(
    code: Code, x: Value | Constant, out: Value, shape: Sequence[int], source: Place, target: Place
) -> bool:
    """Copy elements from one place to another.

    Args:
        code: takes the call.
        x: the array that has the elements.
        out: the array that takes them.
        shape: shape of the copied elements.
        source: number of the first element in x, and its strides.
        target: number of the first element in out, and its strides.

    Returns:
        False if there are too many dimensions.
    """
    sizes, (steps, places) = merged(shape, source[1], target[1])
    missing = OUTER + 1 - len(sizes)
    if missing < 0:
        return False
    zeros = [0] * missing
    code.emit(
        _MOVES[out.dtype.name], *[1] * missing, *sizes,
        *(x, source[0], *zeros, *steps), *(out, target[0], *zeros, *places),
    )  # fmt: skip
    return True


def duplicate(code: Code, x: Value, out: Value) -> bool:
    """Give an output the elements of an input, in the same memory if possible.

    Returns:
        False if there is no kernel for the element type.
    """
    if code.alias(out, x):
        return True
    return known(x) and move(code, x, out, (x.size,), (0, [1]), (0, [1]))


def clear(code: Code, out: Value, value: Any = 0) -> None:
    """Fill an array with a number, or with the result of a function that runs call first."""
    if not callable(value):
        value = float(value) != 0 if out.dtype == "bool" else value
        value = float(value) if out.dtype.name == "float32" else int(value)
    code.emit(_FILLS[out.dtype.name], out.size, out, value)


# ---- the same order


@lowering(
    "assign", "flatten", "flatten2", "reshape", "reshape2", "squeeze", "squeeze2", "unsqueeze",
    "unsqueeze2",
)  # fmt: skip
def reshape(code: Code, x: Value, *rest: Any) -> Any:
    """The same memory. Shapes are known, so nothing needs the other inputs, nor ``XShape``."""
    results = (value for value in reversed(rest) if isinstance(value, Value))
    out = next(value for value in results if value.size == x.size)
    return duplicate(code, x, out)


@lowering("flatten2_grad", "reshape2_grad", "squeeze2_grad", "unsqueeze2_grad")
def reshape2_grad(code: Code, x_shape: Value, d_out: Value, dx: Value) -> Any:
    """The same memory."""
    return duplicate(code, d_out, dx)


@lowering("shrink_rnn_memory_grad")
def shrink_rnn_memory_grad(code: Code, x: Value, d_out: Value, dx: Value) -> Any:
    """The same memory; followed by zeros for sequences that have ended."""
    if d_out.shape == dx.shape:
        return duplicate(code, d_out, dx)
    if not single(d_out):
        return False
    code.emit(_WIDEN, d_out.size, dx.size, d_out, dx)


# ---- another order


def _transpose(code: Code, x: Value, out: Value, order: Sequence[int]) -> Any:
    """Dimension ``i`` of the result is dimension ``order[i]`` of ``x``."""
    steps = strides(x.shape)
    shape = [x.shape[axis] for axis in order]
    source = [steps[axis] for axis in order]
    return known(x) and move(code, x, out, shape, (0, source), (0, strides(shape)))


@lowering("transpose", "transpose2")
def transpose2(code: Code, x: Value, out: Value, *x_shape: Any, axis: Sequence[int]) -> Any:
    """One copy."""
    return _transpose(code, x, out, axis)


@lowering("transpose2_grad")
def transpose2_grad(
    code: Code, x_shape: Value, d_out: Value, dx: Value, *, axis: Sequence[int]
) -> Any:
    """One copy."""
    return _transpose(code, d_out, dx, sorted(range(len(axis)), key=lambda i: axis[i]))


def _swapped(code: Code, x: Value, out: Value, groups: int) -> Any:
    """Channels in groups: the first ones of all groups, then the second ones, and so on."""
    batch, channels, *size = x.shape
    width = math.prod(size)
    shape, steps = (batch, channels // groups, groups, width), channels * width
    source = steps, width, channels // groups * width, 1
    return known(x) and move(code, x, out, shape, (0, source), (0, strides(shape)))


@lowering("shuffle_channel")
def shuffle_channel(code: Code, x: Value, out: Value, *, group: int) -> Any:
    """One copy."""
    return _swapped(code, x, out, group)


@lowering("shuffle_channel_grad")
def shuffle_channel_grad(code: Code, d_out: Value, dx: Value, *, group: int) -> Any:
    """One copy."""
    return _swapped(code, d_out, dx, d_out.shape[1] // group)


# ---- parts and wholes


def _gather_parts(code: Code, parts: Sequence[Value | None], whole: Value, axis: int) -> bool:
    """Copy parts into the array that joins them along an axis."""
    for part, source, target in _sections(parts, whole, axis, parts):
        move(code, part, whole, source[0], (0, source[1]), target)
    return True


def _give_parts(
    code: Code,
    whole: Value,
    parts: Sequence[Value | None],
    axis: int,
    like: Sequence[Value] | None = None,
) -> bool:
    """Copy an array to its parts along an axis; ``like`` has the shapes of all parts."""
    for part, source, target in _sections(parts, whole, axis, like or parts):
        move(code, whole, part, source[0], target, (0, source[1]))
    return True


def _sections(
    parts: Sequence[Value | None], whole: Value, axis: int, like: Sequence[Value | None]
) -> Any:
    """For every part: itself, its shape as rows with its strides, and its place in the whole."""
    axis %= len(whole.shape)
    before, row = math.prod(whole.shape[:axis]), math.prod(whole.shape[axis:])
    start = 0
    for part, shaped in zip(parts, like, strict=True):
        width = shaped.size // before if shaped else 0
        if part is not None:
            yield part, ((before, width), (width, 1)), (start, (row, 1))
        start += width


@lowering("concat")
def concat(code: Code, parts: list[Value], tensor: Value | None, out: Value, *, axis: int) -> Any:
    """One copy of every input."""
    return tensor is None and known(out) and _gather_parts(code, parts, out, axis)


@lowering("concat_grad")
def concat_grad(
    code: Code,
    parts: list[Value],
    d_out: Value,
    tensor: Value | None,
    grads: list[Value | None],
    *,
    axis: int,
) -> Any:
    """One copy for every input."""
    if tensor is not None or not known(d_out):
        return False
    return _give_parts(code, d_out, grads, axis, like=parts)


@lowering("split")
def split(
    code: Code, x: Value, tensor: Value | None, sizes: list[Value], outs: list[Value | None],
    *, axis: int,
) -> Any:  # fmt: skip
    """One copy for every output."""
    if tensor is not None or sizes or not known(x) or any(out is None for out in outs):
        return False
    return _give_parts(code, x, outs, axis)


@lowering("stack")
def stack(code: Code, parts: list[Value], out: Value, *, axis: int) -> Any:
    """One copy of every input."""
    return known(out) and _gather_parts(code, parts, out, axis)


@lowering("stack_grad")
def stack_grad(code: Code, d_out: Value, grads: list[Value | None], *, axis: int) -> Any:
    """One copy for every input."""
    if not known(d_out) or any(grad is None for grad in grads):
        return False
    return _give_parts(code, d_out, grads, axis)


def _section(
    x: Value, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int]
) -> tuple[list[int], Place]:
    """The shape of a section, and its place in the array."""
    steps, shape, first = strides(x.shape), list(x.shape), 0
    for axis, start, end in zip(axes, starts, ends, strict=True):
        found = range(*slice(start, end).indices(x.shape[axis]))
        shape[axis] = len(found)
        first += found.start * steps[axis]
    return shape, (first, steps)


@lowering("slice")
def slice_(
    code: Code, x: Value, start: Value | None, end: Value | None, starts_list: list[Value],
    ends_list: list[Value], out: Value, *, axes: Any, starts: Any, ends: Any,
) -> Any:  # fmt: skip
    """One copy."""
    if start or end or starts_list or ends_list or not known(x):
        return False
    shape, place = _section(x, axes, starts, ends)
    return move(code, x, out, shape, place, (0, strides(shape)))


@lowering("slice_grad")
def slice_grad(
    code: Code, x: Value, start: Value | None, end: Value | None, starts_list: list[Value],
    ends_list: list[Value], d_out: Value, dx: Value, *, axes: Any, starts: Any, ends: Any,
) -> Any:  # fmt: skip
    """Zeros, and one copy."""
    if start or end or starts_list or ends_list or not known(d_out):
        return False
    shape, place = _section(x, axes, starts, ends)
    if len(merged(shape, strides(shape), place[1])[0]) > OUTER + 1:
        return False
    clear(code, dx)
    return move(code, d_out, dx, shape, (0, strides(shape)), place)


def repeat(code: Code, x: Value, out: Value, shape: Sequence[int], times: Sequence[int]) -> bool:
    """Repeat elements ``times[i]`` times along dimension ``i``."""
    sizes = [size for pair in zip(times, shape, strict=True) for size in pair]
    steps = [step for found in strides(shape) for step in (0, found)]
    return known(x) and move(code, x, out, sizes, (0, steps), (0, strides(sizes)))


@lowering("expand")
def expand(
    code: Code, x: Value, tensor: Value | None, parts: list[Value], out: Value, *, expand_times: Any
) -> Any:
    """One copy."""
    return tensor is None and not parts and repeat(code, x, out, x.shape, expand_times)


# ---- other element types

_CAST = """\
def cast_{source}_{target}(n: Count, x: {source}, out: {target}):
    for i in range(n):
        out[i] = {made}
    return 0
"""
_MADE = {
    "float32": "F(x[i])",
    "int32": "np.int32(x[i])",
    "int64": "np.int64(x[i])",
    "bool": "x[i] != 0",
}
_CASTS = {
    (a, b): compiled(f"cast_{x}_{y}", _CAST.format(source=x, target=y, made=_MADE[b]))
    for a, x in _KINDS.items()
    for b, y in _KINDS.items()
    if a != b
}


@lowering("cast")
def cast(code: Code, x: Value, out: Value) -> Any:
    """One pass; none if the type is the same."""
    if x.dtype == out.dtype:
        return duplicate(code, x, out)
    kernel = _CASTS.get((x.dtype.name, out.dtype.name))
    if kernel is None:
        return False
    code.emit(kernel, x.size, x, out)
