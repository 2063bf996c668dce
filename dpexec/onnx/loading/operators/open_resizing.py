"""``Resize`` along axes whose lengths are known only in a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.node import Node

__all__ = ["COORDINATES", "of_open_sizes", "open_lengths", "stretched"]

COORDINATES = {
    "align_corners": (True, 1),
    "asymmetric": (False, 1),
    "half_pixel": (False, 0),
    "pytorch_half_pixel": (False, 0),
}
"""Fluid's ``align_corners`` and ``align_mode`` for what ONNX calls them."""
_TF_NEAREST = "tf_half_pixel_for_nn"


@dataclass(frozen=True)
class Length:
    """How an axis changes.

    Args:
        new: its length in the result, an integer or an open size.
        scale: the factor that the model gives; None if it gives the length.
    """

    new: Any
    scale: float | None


def stretched(length: int, scale: float) -> int:
    """A length times a scale as ONNX rounds it: in float32, so that 25 times 1.8 is 45."""
    return int(np.floor(np.float32(length) * np.float32(scale)))


def open_lengths(
    node: Node, axes: Sequence[int], scales: Sequence[float] | None, sizes: Sequence[Any] | None
) -> dict[int, Length]:
    """All axes that change, if some of their lengths are open; else nothing."""
    dims, found, some_open = node.dims(0), {}, False
    for i, axis in enumerate(axes):
        old = dims[axis]
        if scales is not None:
            scale = scales[i]
            if scale == 1:
                continue
            if isinstance(old, OpenDim) and scale != int(scale):
                node.fail(f"axis {axis} is open; its scale must be an integer, but is {scale}")
            new = old * int(scale) if isinstance(old, OpenDim) else stretched(old, scale)
            found[axis] = Length(new, scale)
        else:
            assert sizes is not None
            new = sizes[i]
            is_open = isinstance(old, OpenDim), isinstance(new, OpenDim)
            if old.same(new) if all(is_open) else not any(is_open) and old == new:
                continue
            found[axis] = Length(new, None)
        some_open = some_open or isinstance(old, OpenDim) or isinstance(new, OpenDim)
    return found if some_open else {}


def of_open_sizes(node: Node, mode: str, lengths: dict[int, Length]) -> Variable:
    """The result, by fluid's operator where that means the same, else by products of matrices.

    Args:
        node: the node.
        mode: its method.
        lengths: the axes that change.
    """
    rank = node.value(0).rank
    where = node.attr("coordinate_transformation_mode", "half_pixel")
    by_scale = all(length.scale is not None for length in lengths.values())
    plain = where in COORDINATES or (where == _TF_NEAREST and mode == "nearest")
    plain = plain and not node.attr("antialias", 0)
    by_ratio = node.attr("keep_aspect_ratio_policy", "stretch") != "stretch"
    if by_ratio and not by_scale:
        _refuse(node, lengths, "to keep the ratio of an image")
    if not plain or not is_float(node.value(0).dtype):
        _refuse(node, lengths, f"for mode {mode!r} with coordinates {where!r}")
    fits = rank in (3, 4) and min(lengths) >= 2
    # Of a length of 1 ONNX takes the middle, and fluid the first element.
    if fits and mode == "linear" and (where != "half_pixel" or by_scale):
        return _by_fluid(node, "bilinear", lengths, *COORDINATES[where])
    if fits and mode == "cubic" and _is_bicubic(node, where, by_scale):
        return _by_fluid(node, "bicubic", lengths, *COORDINATES[where])
    if fits and mode == "nearest" and _takes_floors(node, where, by_scale):
        return _by_fluid(node, "nearest", lengths, False, 1)
    made = node.var(0)
    for axis, length in lengths.items():
        if mode == "nearest":
            chosen = _nearest(node, node.dims(0)[axis], length, where)
            made = node.add("index_select", {"X": made, "Index": chosen}, dim=axis)
            continue
        weights = _weights(node, mode, node.dims(0)[axis], length, where)
        order = [a for a in range(rank) if a != axis] + [axis]
        back = [order.index(a) for a in range(rank)]
        inputs = {"X": node.transpose(made, order), "Y": weights}
        made = node.transpose(node.add("mul", inputs, x_num_col_dims=rank - 1), back)
    return made


def _refuse(node: Node, lengths: dict[int, Length], reason: str) -> NoReturn:
    """Raise an error that names the input that a run tells; else the sizes of the image are it."""
    node.constant(len(node.inputs) - 1, f"scales or sizes, {reason},")
    node.fail(f"sizes of axes {sorted(lengths)} must be known when the model is loaded {reason}")


def _is_bicubic(node: Node, where: str, by_scale: bool) -> bool:
    """Whether fluid's ``bicubic_interp`` means the same."""
    plain = node.attr("cubic_coeff_a", -0.75) == -0.75 and not node.attr("exclude_outside", 0)
    same = where == "align_corners" or (where != "asymmetric" and by_scale)
    return plain and same


def _takes_floors(node: Node, where: str, by_scale: bool) -> bool:
    """Whether fluid's ``nearest_interp`` means the same."""
    rounding = node.attr("nearest_mode", "round_prefer_floor")
    if where == "asymmetric":
        return bool(rounding == "floor")
    if where == _TF_NEAREST:
        return by_scale and rounding == "floor"
    half = where in ("half_pixel", "pytorch_half_pixel")
    return half and by_scale and rounding.startswith("round")  # multiples have no halves


def _by_fluid(
    node: Node, method: str, lengths: dict[int, Length], corners: bool, areas: int
) -> Variable:
    """One of fluid's operators for images, with its settings."""
    x, rank, dims = node.var(0), node.value(0).rank, node.dims(0)
    wanted = [lengths[a].new if a in lengths else dims[a] for a in range(2, rank)]
    if rank == 3:
        x, wanted = node.unsqueeze(x, [2]), [1, *wanted]
    numbers = [node.cast(node.builder.size_variable(v), VarType.INT32) for v in wanted]
    made = node.add(
        f"{method}_interp", {"X": x, "SizeTensor": numbers}, out_h=-1, out_w=-1, scale=0.0,
        align_corners=corners, align_mode=areas, interp_method=method,
    )  # fmt: skip
    return node.squeeze(made, [2]) if rank == 3 else made


def _numbers(node: Node, count: Any) -> Variable:
    """0, 1, ... up to an open size, as real numbers."""
    ends = {"Start": node.number(0, VarType.INT64), "End": node.builder.size_variable(count),
            "Step": node.number(1, VarType.INT64)}  # fmt: skip
    return node.cast(node.add("range", ends), node.value(0).dtype)


def _weights(node: Node, mode: str, old: Any, length: Length, where: str) -> Variable:
    """The weights of an axis by what lies near each place, [old, new]."""
    kind, size = node.value(0).dtype, node.builder.size_variable
    last = node.scaled(node.cast(size(old), kind), bias=-1.0)
    places = _places(node, last, old, length, where)
    rows = node.unsqueeze(_numbers(node, old), [1])
    if mode == "cubic":
        return _cubic(node, node.unsqueeze(places, [0]), rows, last)
    places = node.add("elementwise_max", {"X": places, "Y": node.number(0.0, kind)})
    places = node.unsqueeze(node.add("elementwise_min", {"X": places, "Y": last}), [0])
    distance = node.add("abs", {"X": node.binary("elementwise_sub", places, rows)})
    return node.add("relu", {"X": node.scaled(distance, -1.0, 1.0)})


def _places(node: Node, last: Variable, old: Any, length: Length, where: str) -> Variable:
    """Where the elements of the result lie in the original, [new]."""
    kind = node.value(0).dtype

    def real(value: Any) -> Variable:
        return node.cast(node.builder.size_variable(value), kind)

    def divided(left: Variable, right: Variable) -> Variable:
        return node.binary("elementwise_div", left, right)

    x = _numbers(node, length.new)
    if where == "align_corners":
        most = node.add("elementwise_max", {"X": node.scaled(real(length.new), bias=-1.0),
                                            "Y": node.number(1.0, kind)})  # fmt: skip
        return divided(node.binary("elementwise_mul", x, last), most)
    given = length.scale
    ratio = divided(real(length.new), real(old)) if given is None else node.number(given, kind)
    shift = 0.0 if where == "asymmetric" else 0.5
    back = 0.0 if where == _TF_NEAREST else -shift
    places = node.scaled(divided(node.scaled(x, bias=shift), ratio), bias=back)
    if where == "pytorch_half_pixel":  # a length of 1 takes the first element
        several = node.add("elementwise_min", {"X": node.scaled(real(length.new), bias=-1.0),
                                               "Y": node.number(1.0, kind)})  # fmt: skip
        places = node.binary("elementwise_mul", places, several)
    return places


def _nearest(node: Node, old: Any, length: Length, where: str) -> Variable:
    """The numbers of the elements that an axis takes, [new]."""
    kind = node.value(0).dtype
    last = node.scaled(node.cast(node.builder.size_variable(old), kind), bias=-1.0)
    places = _places(node, last, old, length, where)
    rounding, shift = {
        "floor": ("floor", 0.0),
        "ceil": ("ceil", 0.0),
        "round_prefer_floor": ("ceil", -0.5),
        "round_prefer_ceil": ("floor", 0.5),
    }[node.attr("nearest_mode", "round_prefer_floor")]
    places = node.add(rounding, {"X": node.scaled(places, bias=shift)})
    places = node.add("elementwise_max", {"X": places, "Y": node.number(0.0, kind)})
    return node.cast(node.add("elementwise_min", {"X": places, "Y": last}), VarType.INT64)


def _cubic(node: Node, places: Variable, rows: Variable, last: Variable) -> Variable:
    """Weights of up to four elements around each place; those outside count for the edge."""

    def near(positions: Variable) -> Variable:
        gap = node.add("abs", {"X": node.binary("elementwise_sub", places, positions)})
        return _cubic_kernel(node, gap)

    made = near(rows)
    if node.attr("exclude_outside", 0):
        total = node.add("reduce_sum", {"X": made}, dim=[0], keep_dim=True)
        return node.binary("elementwise_div", made, total)
    first = node.number(0.0, rows.dtype)
    for edge, sign in ((first, -1.0), (last, 1.0)):  # no place is further out than half an element
        outside = [near(node.unsqueeze(node.scaled(edge, bias=sign * k), [1])) for k in (1, 2)]
        here = node.cast(node.binary("equal", rows, edge), rows.dtype)
        added = node.binary("elementwise_mul", here, node.binary("elementwise_add", *outside))
        made = node.binary("elementwise_add", made, added)
    return made


def _cubic_kernel(node: Node, distance: Variable) -> Variable:
    """The weights at distances; each of two polynomials is 0 where the other one holds."""
    a = node.attr("cubic_coeff_a", -0.75)
    x = node.add("clip", {"X": distance}, min=0.0, max=1.0)
    inner = node.scaled(node.add("square", {"X": x}), -(a + 2.0), 1.0)
    inner = node.binary("elementwise_add", inner, x)
    near = node.binary("elementwise_mul", node.scaled(x, -1.0, 1.0), inner)
    x = node.add("clip", {"X": distance}, min=1.0, max=2.0)
    squares = node.add("square", {"X": node.scaled(x, bias=-2.0)})
    far = node.binary("elementwise_mul", node.scaled(x, a, -a), squares)
    return node.binary("elementwise_add", near, far)
