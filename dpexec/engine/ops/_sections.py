"""Sections of tensors along some axes: shared by ``slice`` and ``strided_slice``."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from dpexec.engine.ir.opdef import Spec, require
from dpexec.engine.ops._shapes import require_axis

Ints = Sequence[int]


def sections_of(
    shape: Ints, axes: Ints, starts: Ints, ends: Ints, strides: Ints, decrease_axis: Ints
) -> tuple[builtins.slice, ...]:
    """A Python slice per dimension; the rules are Python's, except for backward strides.

    Raises:
        IndexError: an index of one element is outside its dimension.
    """
    found = [builtins.slice(None)] * len(shape)
    for axis, start, end, stride in zip(axes, starts, ends, strides, strict=True):
        # Python's slices reach the first element backwards only with an end of None.
        stop = None if stride < 0 and end < -shape[axis] else end
        if axis in decrease_axis:
            if start == -1 and end == 0:  # what x[index] adds to an index that holds -1
                stop = None
            if not -shape[axis] <= start < shape[axis]:
                raise IndexError(
                    f"index {start} is outside dimension {axis} of Input, whose shape is "
                    f"{list(shape)}"
                )
        found[axis] = builtins.slice(start, stop, stride)
    return tuple(found)


def kept(shape: Ints, decrease_axis: Ints) -> tuple[int, ...]:
    """The shape without the dimensions that an index picked one element of."""
    if not decrease_axis:
        return tuple(shape)
    return tuple(dim for i, dim in enumerate(shape) if i not in decrease_axis) or (1,)


def known_axes(
    axes: Ints, infer_flags: Ints, tensors: Sequence[Any], parts: list[Any]
) -> list[bool]:
    """Per axis, whether its section is known from the attributes and not given by a variable."""
    if any(tensor is not None for tensor in tensors) or (parts and not infer_flags):
        return [False] * len(axes)
    return [flag != -1 for flag in infer_flags] if parts else [True] * len(axes)


def infer_section(
    x: Spec,
    axes: Ints,
    starts: Ints,
    ends: Ints,
    strides: Ints,
    decrease_axis: Ints,
    known: list[bool],
) -> Spec:
    shape = list(x.shape)
    for axis in (*axes, *decrease_axis):
        require_axis(axis, x, "Input", "axes")
    for axis in axes:
        shape[axis] = -1
    if any(known):
        sections = sections_of(x.shape, axes, starts, ends, strides, ())
        for axis, told in zip(axes, known, strict=True):
            if told:
                shape[axis] = _length(x, axis, sections[axis])
    for axis in decrease_axis:
        require(
            shape[axis] in (1, -1),
            f"decrease_axis {list(decrease_axis)} names dimension {axis} of Input {x}, of which "
            f"{shape[axis]} elements are left, not 1",
        )
    lod_level = 0 if 0 in axes[:1] else x.lod_level
    return x.replace(shape=kept(shape, decrease_axis), lod_level=lod_level)


def _length(x: Spec, axis: int, section: builtins.slice) -> int:
    require(section.step != 0, "strides must not be 0")
    if x.shape[axis] < 0:
        return -1
    length = len(range(*section.indices(x.shape[axis])))
    require(
        length > 0 or x.shape[axis] == 0,
        f"nothing is left of dimension {axis} of Input {x} between start {section.start} and "
        f"end {section.stop} with stride {section.step}",
    )
    return length


def like_input(x: Spec, *_: Any) -> Spec:
    return x.replace(lod_level=0)


def embedded(xp: Any, x: Any, d_out: Any, sections: tuple[builtins.slice, ...]) -> Any:
    grad = xp.zeros(x.shape, d_out.dtype)
    place = grad[sections]
    place[...] = d_out.reshape(place.shape)
    return grad
