"""``strided_slice``: every n-th element along some axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op
from dpexec.engine.ops._sections import (
    Ints,
    embedded,
    infer_section,
    kept,
    known_axes,
    like_input,
    sections_of,
)
from dpexec.engine.ops._shapes import integers, require_lengths, require_numbers


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
    known = known_axes(axes, infer_flags, (start, end, stride), lists)
    section = infer_section(x, axes, starts, ends, strides, decrease_axis, known)
    return section.replace(lod_level=x.lod_level)


_OTHER_END = "begins at the wrong end if a stride is below -1; dpexec begins at starts"
_DROPPED = "refuses the gradient if a dimension is dropped; dpexec gives it"


@op(
    "strided_slice",
    inputs=(
        "Input StartsTensor? EndsTensor? StridesTensor? StartsTensorList?[] EndsTensorList?[] "
        "StridesTensorList?[]"
    ),
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
    host_inputs="StartsTensor EndsTensor StridesTensor "
    "StartsTensorList EndsTensorList StridesTensorList",
    makes_numbers=True,
    flops=0,
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
    sections = sections_of(
        x.shape,
        axes,
        integers(starts, start, start_list),
        integers(ends, end, end_list),
        integers(strides, stride, stride_list),
        decrease_axis,
    )
    out = x[sections]
    return out.reshape(kept(out.shape, decrease_axis))


@strided_slice.grad(
    "Input StartsTensor? EndsTensor? StridesTensor? StartsTensorList?[] EndsTensorList?[]",
    "StridesTensorList?[] Out@GRAD",
    outputs="Input@GRAD",
    infer=like_input,
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
    sections = sections_of(
        x.shape,
        axes,
        integers(starts, start, start_list),
        integers(ends, end, end_list),
        integers(strides, stride, stride_list),
        decrease_axis,
    )
    return embedded(xp, x, d_out, sections)
