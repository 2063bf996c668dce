"""``slice``: a section along some axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ir.operator import Operator
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
    known = known_axes(axes, infer_flags, (start, end), [*start_list, *end_list])
    made = infer_section(x, axes, starts, ends, [1] * len(axes), decrease_axis, known)
    if x.numbers is None or not all(known):
        return made
    (section,) = sections_of(x.shape, axes, starts, ends, [1] * len(axes), decrease_axis)
    return made.replace(numbers=x.numbers[section])


def _rows_stay(op: Operator, x: Spec, out: Spec) -> bool | None:
    """Paddle looks at the first axis alone, so a later one may keep sequences without rows."""
    axes = op.attr("axes")
    return 0 not in axes if 0 in axes[:1] or 0 not in axes else None


@op(
    "slice",
    inputs="Input StartsTensor? EndsTensor? StartsTensorList?[] EndsTensorList?[]",
    infer=_infer,
    attrs={"infer_flags": []},
    samples=lambda r: [
        Sample(
            {"Input": np.arange(12.0).reshape(3, 4)},
            {"axes": [-1], "starts": [1], "ends": [3]},
            expected={"Out": np.array([[1.0, 2.0], [5.0, 6.0], [9.0, 10.0]])},
            deviates=dict.fromkeys(
                ("Out", "Input@GRAD"),
                "ignores axes below 0; dpexec counts them from the end",
            ),
        ),
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
    capturable=True,
    host_inputs="StartsTensor EndsTensor StartsTensorList EndsTensorList",
    makes_numbers=True,
    tells_numbers=True,
    precision="gray",
    quantized="inputs",
    rows_stay=_rows_stay,
    flops=0,
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

    Negative numbers count from the end; sections are clipped to the tensor. The dimensions
    ``decrease_axis``, of which a single element is taken, are dropped; for these, a variable may
    hold -1 with 0 as its end. The variables replace the attributes. Source: Paddle op ``slice``.

    Raises:
        IndexError: an element of a dropped dimension does not exist.
    """
    starts, ends = integers(starts, start, start_list), integers(ends, end, end_list)
    out = x[sections_of(x.shape, axes, starts, ends, [1] * len(axes), decrease_axis)]
    require(
        out.size or not x.size,
        f"nothing is left of Input between starts {list(starts)} and ends {list(ends)}",
    )
    return out.reshape(kept(out.shape, decrease_axis))


@slice.grad(
    "Input StartsTensor? EndsTensor? StartsTensorList?[] EndsTensorList?[] Out@GRAD",
    outputs="Input@GRAD",
    infer=like_input,
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
    sections = sections_of(x.shape, axes, starts, ends, [1] * len(axes), decrease_axis)
    return embedded(xp, x, d_out, sections)


slice_grad.grad_is(slice)
