"""``slice`` and ``strided_slice``: a section along some axes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import integers, require_axis, require_lengths, require_numbers

Ints = Sequence[int]


def _sections(
    shape: Ints, axes: Ints, starts: Ints, ends: Ints, strides: Ints, decrease_axis: Ints
) -> tuple[builtins.slice, ...]:
    """A Python slice per dimension: the rules are the same, but for backward strides.

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


def _kept(shape: Ints, decrease_axis: Ints) -> tuple[int, ...]:
    """The shape without the dimensions that an index picked one element of."""
    if not decrease_axis:
        return tuple(shape)
    return tuple(dim for i, dim in enumerate(shape) if i not in decrease_axis) or (1,)


def _known(axes: Ints, infer_flags: Ints, tensors: Sequence[Any], parts: list[Any]) -> list[bool]:
    """Per axis, whether the attributes tell its section: no variable does."""
    if any(tensor is not None for tensor in tensors) or (parts and not infer_flags):
        return [False] * len(axes)
    return [flag != -1 for flag in infer_flags] if parts else [True] * len(axes)


def _infer_section(
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
        sections = _sections(x.shape, axes, starts, ends, strides, ())
        for axis, told in zip(axes, known, strict=True):
            if told:
                shape[axis] = _length(x, axis, sections[axis])
    for axis in decrease_axis:
        require(
            shape[axis] in (1, -1),
            f"decrease_axis {list(decrease_axis)} names dimension {axis} of Input {x}, of which "
            f"{shape[axis]} elements are left, not 1",
        )
    lod_level = 0 if 0 in axes else x.lod_level
    return x.replace(shape=_kept(shape, decrease_axis), lod_level=lod_level)


def _length(x: Spec, axis: int, section: builtins.slice) -> int:
    require(section.step != 0, "strides must not be 0")
    if x.shape[axis] < 0:
        return -1
    length = len(range(*section.indices(x.shape[axis])))
    require(
        length > 0,
        f"nothing is left of dimension {axis} of Input {x} between start {section.start} and "
        f"end {section.stop} with stride {section.step}",
    )
    return length


def _infer(
    x: Spec,
    start: Spec | None,
    end: Spec | None,
    start_list: list[Spec],
    end_list: list[Spec],
    *,
    axes: Ints,
    starts: Ints = (),
    ends: Ints = (),
    decrease_axis: Ints = (),
    infer_flags: Ints = (),
) -> Spec:
    require_numbers(start_list, "StartsTensorList")
    require_numbers(end_list, "EndsTensorList")
    bounds = {"starts": (start, start_list or starts), "ends": (end, end_list or ends)}
    require_lengths(axes, bounds)
    known = _known(axes, infer_flags, (start, end), [*start_list, *end_list])
    return _infer_section(x, axes, starts, ends, [1] * len(axes), decrease_axis, known)


@op(
    "slice",
    inputs="Input StartsTensor? EndsTensor? StartsTensorList?[] EndsTensorList?[]",
    outputs="Out",
    infer=_infer,
    attrs={"infer_flags": []},
    samples=lambda r: [
        Sample(
            {"Input": np.arange(12.0).reshape(3, 4)},
            {"axes": [0, 1], "starts": [-2, 1], "ends": [10, -1]},
            expected={"Out": np.array([[5.0, 6.0], [9.0, 10.0]])},
        ),
        Sample(
            {"Input": r.normal((3, 4, 2))},
            {"axes": [0, 2], "starts": [1, -5], "ends": [2, 1], "decrease_axis": [0]},
        ),
        Sample(
            {"Input": r.normal((3,))},
            {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]},
        ),
        Sample(
            {"Input": r.normal((3, 2)), "StartsTensor": np.array([1], np.int32)},
            {"axes": [0], "starts": [-1], "ends": [3]},
        ),
        Sample(
            {
                "Input": r.normal((3, 2)),
                "EndsTensorList": [np.array([n], np.int32) for n in (2, 1)],
            },
            {"axes": [0, 1], "starts": [0, 0], "ends": [-1, 1]},
        ),
        Sample(
            {
                "Input": np.arange(12.0).reshape(3, 4),
                "StartsTensorList": [np.array([n], np.int32) for n in (-1, 1)],
                "EndsTensorList": [np.array([n], np.int32) for n in (0, 3)],
            },
            {
                "axes": [0, 1],
                "starts": [-1, 1],
                "ends": [-1, 3],
                "infer_flags": [-1, 1],
                "decrease_axis": [0],
            },
            expected={"Out": np.array([9.0, 10.0])},
        ),
    ],
)
def slice(
    xp: Any,
    x: Any,
    start: Any,
    end: Any,
    start_list: list[Any],
    end_list: list[Any],
    *,
    axes: Ints,
    starts: Ints = (),
    ends: Ints = (),
    decrease_axis: Ints = (),
) -> Any:
    """The section of ``x`` from ``starts`` to before ``ends`` along ``axes``; a view.

    Negative numbers count from the end, and what lies outside is cut off. The dimensions
    ``decrease_axis``, of which one element is taken, are dropped; there a variable may hold -1,
    with 0 as its end. The variables replace the attributes. Source: Paddle op ``slice``.

    Raises:
        IndexError: that one element is outside its dimension.
    """
    starts, ends = integers(starts, start, start_list), integers(ends, end, end_list)
    out = x[_sections(x.shape, axes, starts, ends, [1] * len(axes), decrease_axis)]
    return out.reshape(_kept(out.shape, decrease_axis))


def _like_input(x: Spec, *_: Any) -> Spec:
    return x.replace(lod_level=0)


@slice.grad(
    "Input",
    "StartsTensor?",
    "EndsTensor?",
    "StartsTensorList?[]",
    "EndsTensorList?[]",
    "Out@GRAD",
    outputs="Input@GRAD",
    infer=_like_input,
)
def slice_grad(
    xp: Any,
    x: Any,
    start: Any,
    end: Any,
    start_list: list[Any],
    end_list: list[Any],
    d_out: Any,
    *,
    axes: Ints = (),
    starts: Ints = (),
    ends: Ints = (),
    decrease_axis: Ints = (),
) -> Any:
    """The gradient in its place, zeros around it."""
    starts, ends = integers(starts, start, start_list), integers(ends, end, end_list)
    sections = _sections(x.shape, axes, starts, ends, [1] * len(axes), decrease_axis)
    return _embedded(xp, x, d_out, sections)


slice_grad.grad_is(slice)


def _embedded(xp: Any, x: Any, d_out: Any, sections: tuple[builtins.slice, ...]) -> Any:
    grad = xp.zeros(x.shape, d_out.dtype)
    place = grad[sections]
    place[...] = d_out.reshape(place.shape)
    return grad


def _infer_strided(
    x: Spec,
    start: Spec | None,
    end: Spec | None,
    stride: Spec | None,
    start_list: list[Spec],
    end_list: list[Spec],
    stride_list: list[Spec],
    *,
    axes: Ints,
    starts: Ints = (),
    ends: Ints = (),
    strides: Ints = (),
    decrease_axis: Ints = (),
    infer_flags: Ints = (),
) -> Spec:
    require_numbers(start_list, "StartsTensorList")
    require_numbers(end_list, "EndsTensorList")
    require_numbers(stride_list, "StridesTensorList")
    bounds = {"starts": (start, start_list or starts), "ends": (end, end_list or ends)}
    require_lengths(axes, {**bounds, "strides": (stride, stride_list or strides)})
    lists = [*start_list, *end_list, *stride_list]
    known = _known(axes, infer_flags, (start, end, stride), lists)
    section = _infer_section(x, axes, starts, ends, strides, decrease_axis, known)
    return section.replace(lod_level=x.lod_level)


_OTHER_END = "steps from the other end where a stride is less than -1; dpexec begins at starts"
_DROPPED = "refuses the gradient where a dimension is dropped; dpexec gives it"


@op(
    "strided_slice",
    inputs=(
        "Input StartsTensor? EndsTensor? StridesTensor? StartsTensorList?[] EndsTensorList?[] "
        "StridesTensorList?[]"
    ),
    outputs="Out",
    infer=_infer_strided,
    attrs={"infer_flags": []},
    samples=lambda r: [
        Sample(
            {"Input": np.arange(6.0)},
            {"axes": [0], "starts": [0], "ends": [5], "strides": [2], "infer_flags": [1]},
            expected={"Out": np.array([0.0, 2.0, 4.0])},
        ),
        Sample(
            {"Input": np.arange(6.0)},
            {"axes": [0], "starts": [-1], "ends": [-9], "strides": [-1], "infer_flags": [1]},
            expected={"Out": np.arange(6.0)[::-1]},
        ),
        Sample(
            {"Input": np.arange(6.0)},
            {"axes": [0], "starts": [4], "ends": [0], "strides": [-2], "infer_flags": [1]},
            expected={"Out": np.array([4.0, 2.0])},
            deviates=dict.fromkeys(("Out", "Input@GRAD"), _OTHER_END),
        ),
        Sample(
            {"Input": r.normal((3, 5)), "StridesTensor": np.array([2], np.int32)},
            {"axes": [1], "starts": [1], "ends": [5], "strides": [-1], "infer_flags": [1]},
        ),
        Sample(
            {"Input": r.normal((3, 5))},
            {
                "axes": [1],
                "starts": [1],
                "ends": [2],
                "strides": [1],
                "infer_flags": [1],
                "decrease_axis": [1],
            },
            deviates={"Input@GRAD": _DROPPED},
        ),
        Sample(
            {
                "Input": np.arange(15.0).reshape(3, 5),
                "StartsTensorList": [np.array([n], np.int32) for n in (-1, 0)],
                "EndsTensorList": [np.array([n], np.int32) for n in (0, 100)],
            },
            {
                "axes": [0, 1],
                "starts": [-1, 0],
                "ends": [-1, 100],
                "strides": [1, 2],
                "infer_flags": [-1, 1],
                "decrease_axis": [0],
            },
            expected={"Out": np.array([10.0, 12.0, 14.0])},
            deviates={"Input@GRAD": _DROPPED},
        ),
    ],
)
def strided_slice(
    xp: Any,
    x: Any,
    start: Any,
    end: Any,
    stride: Any,
    start_list: list[Any],
    end_list: list[Any],
    stride_list: list[Any],
    *,
    axes: Ints,
    starts: Ints = (),
    ends: Ints = (),
    strides: Ints = (),
    decrease_axis: Ints = (),
) -> Any:
    """Every ``strides``-th element from ``starts`` to before ``ends`` along ``axes``; a view.

    Negative strides go backwards; otherwise as ``slice``. Source: Paddle op ``strided_slice``.
    """
    sections = _sections(
        x.shape,
        axes,
        integers(starts, start, start_list),
        integers(ends, end, end_list),
        integers(strides, stride, stride_list),
        decrease_axis,
    )
    out = x[sections]
    return out.reshape(_kept(out.shape, decrease_axis))


@strided_slice.grad(
    "Input",
    "StartsTensor?",
    "EndsTensor?",
    "StridesTensor?",
    "StartsTensorList?[]",
    "EndsTensorList?[]",
    "StridesTensorList?[]",
    "Out@GRAD",
    outputs="Input@GRAD",
    infer=_like_input,
)
def strided_slice_grad(
    xp: Any,
    x: Any,
    start: Any,
    end: Any,
    stride: Any,
    start_list: list[Any],
    end_list: list[Any],
    stride_list: list[Any],
    d_out: Any,
    *,
    axes: Ints = (),
    starts: Ints = (),
    ends: Ints = (),
    strides: Ints = (),
    decrease_axis: Ints = (),
) -> Any:
    """The gradient in its places, zeros between and around them."""
    sections = _sections(
        x.shape,
        axes,
        integers(starts, start, start_list),
        integers(ends, end, end_list),
        integers(strides, stride, stride_list),
        decrease_axis,
    )
    return _embedded(xp, x, d_out, sections)
