"""``split``, ``stack`` and ``unstack``: one tensor from several and several from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import (
    GradContext,
    GradOp,
    Sample,
    Spec,
    dims_match,
    merge_dim,
    op,
    require,
)
from dpexec.engine.ops._joins import takes_few
from dpexec.engine.ops._shapes import (
    integer,
    integers,
    require_axis,
    require_numbers,
    require_same_dtype,
    same_dims,
)


def _section_sizes(sections: Sequence[int], size: int) -> list[int]:
    """The sections, with -1 replaced by the rest of ``size``."""
    rest = size - sum(section for section in sections if section >= 0)
    return [rest if section < 0 else section for section in sections]


def _known_sizes(sections: Sequence[int], size: int, of: str) -> list[int]:
    """The sections of a dimension that is known.

    Args:
        sections: their sizes; one may be -1.
        size: size of the dimension.
        of: name of the dimension, for errors.

    Raises:
        InvalidOp: they do not add up to the dimension, or nothing remains for -1.
    """
    require(
        list(sections).count(-1) <= 1 and all(section >= -1 for section in sections),
        f"sections are {list(sections)}: only one may be -1",
    )
    sizes = _section_sizes(sections, size)
    require(
        sum(sizes) == size and (-1 not in sections or sizes[list(sections).index(-1)] > 0),
        f"sections {list(sections)} do not add up to {of}",
    )
    return sizes


def _infer_split(
    x: Spec,
    axis_tensor: Spec | None,
    parts: list[Spec],
    *,
    num: int = 0,
    sections: Sequence[int] = (),
    axis: int = 0,
) -> tuple[list[Spec]]:
    require(num > 0 or sections, "either num or sections must be given")
    require_numbers(parts, "SectionsTensorList")
    if axis_tensor is not None:
        return ([x.replace(shape=(-1,) * x.rank)] * (num or len(sections)),)
    at = require_axis(axis, x)
    size = x.shape[at]
    if num:
        require(
            size < 0 or size % num == 0,
            f"dimension {axis} of X {x} cannot be divided into {num} equal parts",
        )
        sizes = [size if size < 0 else size // num] * num
    else:
        known = not parts and size >= 0
        of = f"dimension {axis} of X {x}"
        sizes = _known_sizes(sections, size, of) if known else list(sections)
    shapes = ((*x.shape[:at], part, *x.shape[at + 1 :]) for part in sizes)
    lod_level = x.lod_level if at else 0
    return ([x.replace(shape=shape, lod_level=lod_level) for shape in shapes],)


@op(
    "split",
    inputs="X AxisTensor? SectionsTensorList?[]",
    outputs="Out[]",
    infer=_infer_split,
    samples=lambda r: [
        Sample({"X": r.normal((2, 6))}, {"axis": 1, "num": 3}),
        Sample({"X": r.normal((2, 6))}, {"axis": 1, "sections": [1, 2, -1]}),
        Sample({"X": r.normal((4, 2)), "AxisTensor": np.array([0], np.int32)}, {"num": 2}, grad=()),
        Sample(
            {"X": np.arange(3.0), "SectionsTensorList": [np.array([n], np.int32) for n in (1, 2)]},
            {"sections": [1, -1]},
            expected={"Out": [np.array([0.0]), np.array([1.0, 2.0])]},
        ),
    ],
    capturable=True,
    host_inputs="AxisTensor SectionsTensorList",
    makes_numbers=True,
    flops=0,
)
def split(
    xp: Any,
    x: Any,
    axis_tensor: Any,
    parts: list[Any],
    *,
    num: int = 0,
    sections: Sequence[int] = (),
    axis: int = 0,
) -> Any:
    """``x`` cut along ``axis`` into ``num`` equal parts or into ``sections``; views.

    A section of -1 takes the rest; the variables replace the attributes. Source: Paddle op
    ``split``.
    """
    at = integer(axis, axis_tensor)
    if num:
        return (xp.split(x, num, axis=at),)
    of = f"dimension {at} of X {x.shape}"
    ends = np.cumsum(_known_sizes(integers(sections, None, parts), x.shape[at], of))
    return (xp.split(x, ends[:-1].tolist(), axis=at),)


@split.grad_maker
def split_grad(context: GradContext) -> list[GradOp]:
    """The gradients of the parts, concatenated by a ``concat``, as in Paddle's programs."""
    inputs = {"X": context.output_grads["Out"]}
    if context.op.inputs.get("AxisTensor"):
        inputs["AxisTensor"] = context.op.inputs["AxisTensor"]
    outputs = {"Out": context.input_grads["X"]}
    return [GradOp("concat", inputs, outputs, context.op.plain_attrs())]


def _infer_stack(xs: list[Spec], *, axis: int = 0) -> Spec:
    first = xs[0]
    shape = first.shape
    for x in xs[1:]:
        require_same_dtype(first, x, "all X")
        require(
            same_dims(shape, x.shape),
            f"all X must have the same shape, but they are {', '.join(map(str, xs))}",
        )
        shape = tuple(map(merge_dim, shape, x.shape))
    at = require_axis(axis, first.replace(shape=(*shape, len(xs))), "the result")
    return first.replace(shape=(*shape[:at], len(xs), *shape[at:]))


@op(
    "stack",
    inputs="X[]",
    outputs="Y",
    infer=_infer_stack,
    samples=lambda r: [
        Sample({"X": [r.normal((2, 3)) for _ in range(4)]}, {"axis": axis}) for axis in (0, 1, -1)
    ],
    capturable=takes_few,
    makes_numbers=True,
    grad_lod="flow",
    precision="gray",
    flops=0,
)
def stack(xp: Any, xs: list[Any], *, axis: int = 0) -> Any:
    """Tensors of one shape, stacked along a new dimension. Source: Paddle op ``stack``."""
    return xp.stack(xs, axis=axis)


def _infer_unstacked(y: Spec, *, axis: int = 0) -> tuple[list[Spec]]:
    at = require_axis(axis, y, "Y")
    require(y.shape[at] >= 0, f"dimension {axis} of {y} must be known")
    part = y.replace(shape=(*y.shape[:at], *y.shape[at + 1 :]), lod_level=0)
    return ([part] * y.shape[at],)


def _unstacked(y: Any, axis: int, needs: Sequence[bool]) -> list[Any]:
    at = axis % y.ndim
    before = (slice(None),) * at
    return [y[(*before, i, ...)] if wanted else None for i, wanted in enumerate(needs)]


@stack.grad("Y@GRAD", outputs="X@GRAD[]", infer=_infer_unstacked, capturable=True, grad_lod=None)
def stack_grad(xp: Any, d_y: Any, *, axis: int = 0, needs: tuple[list[bool]]) -> Any:
    """Every input gets its part of the gradient; views."""
    return (_unstacked(d_y, axis, needs[0]),)


def _infer_unstack(x: Spec, *, axis: int = 0, num: int) -> tuple[list[Spec]]:
    at = require_axis(axis, x)
    require(
        dims_match(x.shape[at], num),
        f"num is {num}, but must be dimension {axis} of X {x}",
    )
    return _infer_unstacked(x.replace(shape=(*x.shape[:at], num, *x.shape[at + 1 :])), axis=axis)


@op(
    "unstack",
    inputs="X",
    outputs="Y[]",
    infer=_infer_unstack,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3))}, {"axis": -1, "num": 3}),
        Sample({"X": r.normal((2, 3, 4))}, {"axis": 0, "num": 2}),
        Sample(
            {"X": np.array([5.0, 6.0])},
            {"num": 2},
            expected={"Y": [np.array(5.0), np.array(6.0)]},
        ),
    ],
    precision="gray",
    flops=0,
)
def unstack(xp: Any, x: Any, *, axis: int = 0, num: int) -> Any:
    """The slices of ``x`` along ``axis``, without that dimension; views.

    Source: Paddle op ``unstack``.
    """
    return (_unstacked(x, axis, [True] * num),)


@unstack.grad("Y@GRAD[]", outputs="X@GRAD", infer=_infer_stack)
def unstack_grad(xp: Any, d_ys: list[Any], *, axis: int = 0) -> Any:
    """The gradients of the slices, stacked."""
    return xp.stack(d_ys, axis=axis)
