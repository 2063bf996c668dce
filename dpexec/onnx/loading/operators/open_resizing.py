"""``Resize`` along axes whose lengths only a run tells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.node import Node

__all__ = ["COORDINATES", "of_open_sizes", "open_lengths"]

COORDINATES = {
    "align_corners": (True, 1),
    "asymmetric": (False, 1),
    "half_pixel": (False, 0),
    "pytorch_half_pixel": (False, 0),
}
"""Fluid's ``align_corners`` and ``align_mode`` for what ONNX calls them."""


@dataclass(frozen=True)
class Length:
    """How an axis changes.

    Args:
        new: its length in the result, an integer or an open size.
        scale: the factor that the model gives; None if it gives the length.
    """

    new: Any
    scale: float | None


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
            new = old * int(scale) if isinstance(old, OpenDim) else math.floor(old * scale)
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
    floors = where == "asymmetric" and node.attr("nearest_mode", "") == "floor"
    half = where in ("half_pixel", "pytorch_half_pixel")
    linear = mode == "linear" and where in COORDINATES
    nearest = mode == "nearest" and (floors or (half and by_scale))  # multiples have no halves
    if not (linear or nearest) or node.attr("antialias", 0) or not is_float(node.value(0).dtype):
        node.fail(
            f"sizes of axes {sorted(lengths)} must be known when the model is loaded for mode "
            f"{mode!r} with coordinates {where!r}"
        )
    fits = rank in (3, 4) and min(lengths) >= 2
    # Of a length of 1 ONNX takes the middle, and fluid the first element.
    if fits and (nearest or where != "half_pixel" or by_scale):
        return _by_fluid(node, lengths, COORDINATES[where] if linear else None)
    if nearest:
        node.fail(f"axes {sorted(lengths)} are resized; only those of images may be open")
    made = node.var(0)
    for axis, length in lengths.items():
        weights = _weights(node, node.dims(0)[axis], length, where)
        order = [a for a in range(rank) if a != axis] + [axis]
        back = [order.index(a) for a in range(rank)]
        inputs = {"X": node.transpose(made, order), "Y": weights}
        made = node.transpose(node.add("mul", inputs, x_num_col_dims=rank - 1), back)
    return made


def _by_fluid(
    node: Node, lengths: dict[int, Length], coordinates: tuple[bool, int] | None
) -> Variable:
    """``bilinear_interp`` with coordinates, ``nearest_interp`` without them."""
    x, rank, dims = node.var(0), node.value(0).rank, node.dims(0)
    corners, areas = coordinates or (False, 1)
    wanted = [lengths[a].new if a in lengths else dims[a] for a in range(2, rank)]
    if rank == 3:
        x, wanted = node.unsqueeze(x, [2]), [1, *wanted]
    numbers = [node.cast(node.builder.size_variable(v), VarType.INT32) for v in wanted]
    method = "bilinear" if coordinates else "nearest"
    made = node.add(
        f"{method}_interp", {"X": x, "SizeTensor": numbers}, out_h=-1, out_w=-1, scale=0.0,
        align_corners=corners, align_mode=areas, interp_method=method,
    )  # fmt: skip
    return node.squeeze(made, [2]) if rank == 3 else made


def _weights(node: Node, old: Any, length: Length, where: str) -> Variable:
    """The weights of an axis by what lies near each place, [old, new]."""
    kind, size = node.value(0).dtype, node.builder.size_variable

    def real(value: Any) -> Variable:
        return node.cast(size(value), kind)

    def numbers(count: Any) -> Variable:
        ends = {"Start": node.number(0, VarType.INT64), "End": size(count),
                "Step": node.number(1, VarType.INT64)}  # fmt: skip
        return node.cast(node.add("range", ends), kind)

    def divided(left: Variable, right: Variable) -> Variable:
        return node.binary("elementwise_div", left, right)

    last, x = node.scaled(real(old), bias=-1.0), numbers(length.new)
    if where == "align_corners":
        most = node.add("elementwise_max", {"X": node.scaled(real(length.new), bias=-1.0),
                                            "Y": node.number(1.0, kind)})  # fmt: skip
        places = node.binary("elementwise_mul", x, divided(last, most))
    else:
        given = length.scale
        ratio = divided(real(length.new), real(old)) if given is None else node.number(given, kind)
        shift = 0.0 if where == "asymmetric" else 0.5
        places = node.scaled(divided(node.scaled(x, bias=shift), ratio), bias=-shift)
    if where == "pytorch_half_pixel":  # a length of 1 takes the first element
        several = node.add("elementwise_min", {"X": node.scaled(real(length.new), bias=-1.0),
                                               "Y": node.number(1.0, kind)})  # fmt: skip
        places = node.binary("elementwise_mul", places, several)
    places = node.add("elementwise_max", {"X": places, "Y": node.number(0.0, kind)})
    places = node.unsqueeze(node.add("elementwise_min", {"X": places, "Y": last}), [0])
    rows = node.unsqueeze(numbers(old), [1])
    distance = node.add("abs", {"X": node.binary("elementwise_sub", places, rows)})
    return node.add("relu", {"X": node.scaled(distance, -1.0, 1.0)})
