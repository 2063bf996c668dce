"""``Resize`` and ``Upsample``: along each axis, a matrix that is known when the model is loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType, to_numpy
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.dtypes import is_float
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node
from dpexec.onnx.loading.operators.open_resizing import (
    COORDINATES,
    of_open_sizes,
    open_lengths,
    stretched,
)

_FILTERS = {"nearest": 1, "linear": 1, "cubic": 2}
"""Half the width of each method's window."""
_COORDINATES = (*COORDINATES, "half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class _Axis:
    """How an axis is resized.

    Args:
        old: its length.
        new: length of the result.
        scale: the ratio that the model asks for.
        roi: first and last place, as shares of the axis.
    """

    old: int
    new: int
    scale: float
    roi: tuple[float, float]

    def places(self, mode: str, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
        """Where the elements of the result lie in the original."""
        x = np.arange(self.new, dtype=dtype)
        if mode == "align_corners":
            length = self.old * self.scale  # what the model asks for, before it is cut to rows
            return x * (self.old - 1) / (length - 1) if length > 1 else x * 0
        if mode == "asymmetric":
            return x / self.scale
        if mode == "tf_half_pixel_for_nn":  # of opset 11 and 12, which tf2onnx still writes
            return (x + 0.5) / self.scale
        if mode == "tf_crop_and_resize":
            start, end = self.roi
            if self.new == 1:
                return np.array([0.5 * (start + end) * (self.old - 1)])
            step = (end - start) * (self.old - 1) / (self.new - 1)
            return start * (self.old - 1) + x * step
        if mode == "pytorch_half_pixel" and self.new == 1:
            return np.zeros(1)
        if mode == "half_pixel_symmetric":
            adjusted = self.new / (self.scale * self.old)
            shift = self.old / 2 * (1 - adjusted)
            return shift + (x + 0.5) / self.scale - 0.5
        return (x + 0.5) / self.scale - 0.5


def _nearest(places: np.ndarray[Any, Any], rounding: str) -> np.ndarray[Any, Any]:
    if rounding == "round_prefer_ceil":
        return np.floor(places + 0.5)
    return {
        "round_prefer_floor": np.ceil(places - 0.5),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
    }[rounding]


def _chosen(node: Node, axis: _Axis) -> np.ndarray[Any, Any]:
    """The elements that the nearest places are: as onnxruntime, in float32, where 3 / 0.6 is 5."""
    where = node.attr("coordinate_transformation_mode", "half_pixel")
    places = axis.places(where, np.float32).astype(np.float64)
    found = _nearest(places, node.attr("nearest_mode", "round_prefer_floor"))
    return np.clip(found, 0, axis.old - 1).astype(np.int64)


def _kernel(mode: str, x: np.ndarray[Any, Any], a: float) -> np.ndarray[Any, Any]:
    """The weight of elements at distances from a place."""
    x = np.abs(x)
    if mode == "linear":
        return np.maximum(1 - x, 0)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _matrix(node: Node, axis: _Axis, mode: str) -> np.ndarray[Any, Any]:
    """The weights of an axis: a row for each element of the result."""
    if mode == "nearest":
        weights = np.zeros((axis.new, axis.old))
        weights[np.arange(axis.new), _chosen(node, axis)] = 1
        return weights
    places = axis.places(node.attr("coordinate_transformation_mode", "half_pixel"))
    stretch = max(1 / axis.scale, 1.0) if node.attr("antialias", 0) else 1.0
    reach = math.ceil(_FILTERS[mode] * stretch) + 1
    columns = np.floor(places)[:, None] + np.arange(-reach, reach + 1)
    a = node.attr("cubic_coeff_a", -0.75)
    parts = _kernel(mode, (columns - places[:, None]) / stretch, a)
    inside = (columns >= 0) & (columns < axis.old)
    parts = np.where(inside, parts, 0) if node.attr("exclude_outside", 0) else parts
    parts /= parts.sum(1, keepdims=True)
    weights = np.zeros((axis.new, axis.old))
    rows = np.repeat(np.arange(axis.new), columns.shape[1])
    np.add.at(weights, (rows, np.clip(columns, 0, axis.old - 1).astype(int).ravel()), parts.ravel())
    return weights


def _scales(node: Node, rank: int) -> tuple[list[int], list[float] | None, list[Any] | None]:
    """The axes that are resized, and their scales or their new lengths."""
    axes = [a + rank if a < 0 else a for a in node.attr("axes", list(range(rank)))]
    if node.op_type == "Upsample":
        found = node.attr("scales") if "scales" in node.attrs else node.constant(1, "scales")
        return axes, [float(v) for v in found], None  # type: ignore[union-attr]
    index = 1 if node.version < 11 else 2
    scales = node.constant(index, "scales")
    if scales is not None and scales.size:
        return axes, [float(v) for v in scales], None
    sizes = node.sizes_of_run(3, "sizes") if node.version >= 11 else []
    if not sizes:
        node.fail("neither scales nor sizes are given")
    return axes, None, sizes


@operator("Resize", "Upsample")
def resize(node: Node) -> Any:
    """Nearest elements are selected; linear and cubic weights are products of matrices."""
    _with_old_defaults(node)
    x, rank = node.var(0), node.value(0).rank
    own = x.dtype
    mode = node.attr("mode", "nearest")
    if mode not in _FILTERS:
        node.fail(f"mode {mode!r} is unknown")
    known = {"coordinate_transformation_mode": _COORDINATES, "nearest_mode": _ROUNDINGS}
    for name, words in known.items():
        if node.attr(name, words[0]) not in words:
            node.fail(f"{name} {node.attr(name)!r} is unknown; {', '.join(words)} are known")
    axes, scales, sizes = _scales(node, rank)
    lengths = open_lengths(node, axes, scales, sizes)
    if lengths:
        return of_open_sizes(node, mode, lengths)
    resized = _axes(node, axes, scales, sizes)
    fused = _by_fluid(node, x, mode, resized)
    if fused is not None:
        return fused
    for number, axis in resized.items():
        if mode == "nearest" and not _crops(node):
            index = node.builder.constant(_chosen(node, axis))
            x = node.add("index_select", {"X": x, "Index": index}, dim=number)
        else:
            x = _along(node, x, number, _matrix(node, axis, mode), axis)
    return node.cast(x, own)


def _with_old_defaults(node: Node) -> None:
    """Version 10 and ``Upsample`` have coordinates without settings."""
    if node.op_type == "Upsample" or node.version < 11:
        node.attrs["coordinate_transformation_mode"] = "asymmetric"
        node.attrs["nearest_mode"] = "floor"
        node.attrs["mode"] = node.attr("mode", "nearest").replace("bilinear", "linear")


def _crops(node: Node) -> bool:
    return bool(node.attr("coordinate_transformation_mode", "") == "tf_crop_and_resize")


def _axes(
    node: Node, axes: Sequence[int], scales: Sequence[float] | None, sizes: Sequence[Any] | None
) -> dict[int, _Axis]:
    """The axes that change, by number."""
    found = {}
    roi = [0.0] * len(axes) + [1.0] * len(axes)
    if _crops(node):
        given = node.constant(1, "roi")
        assert given is not None
        roi = [float(v) for v in given]
    dims = node.dims(0)
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if sizes is not None and policy != "stretch":
        ratios = [new / dims[axis] for new, axis in zip(sizes, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        scales = [ratio] * len(axes)
        sizes = [math.floor(ratio * dims[axis] + 0.5) for axis in axes]
    for i, axis in enumerate(axes):
        place = (roi[i], roi[len(axes) + i])
        if scales is not None and scales[i] == 1 and not _crops(node):
            continue
        if sizes is not None and isinstance(sizes[i], OpenDim) and sizes[i].same(dims[axis]):
            continue
        if not isinstance(dims[axis], int) or (sizes and not isinstance(sizes[i], int)):
            node.fail(f"axis {axis} is resized; its sizes must be known when the model is loaded")
        old = dims[axis]
        new = sizes[i] if sizes is not None else stretched(old, scales[i])  # type: ignore[index]
        scale = scales[i] if scales is not None else new / old
        if scales is not None or new != old or _crops(node):  # 5 times 1.1 is 5, but not the same 5
            found[axis] = _Axis(old, new, scale, place)
    return found


def _by_fluid(node: Node, x: Variable, mode: str, axes: dict[int, _Axis]) -> Variable | None:
    """The result of fluid's own operator where that means the same, which is faster."""
    if len(x.shape) != 4 or {*axes} != {2, 3} or not is_float(x.dtype):
        return None
    if any(abs(a.new - a.old * a.scale) > 1e-6 for a in axes.values()):
        return None  # fluid takes the ratio of lengths, not the scale that is given
    where = node.attr("coordinate_transformation_mode", "half_pixel")
    settings: dict[str, Any] = {"out_h": axes[2].new, "out_w": axes[3].new, "scale": 0.0}
    if where == "half_pixel" and min(a.new for a in axes.values()) == 1:
        return None  # the middle in ONNX, the first element in fluid
    if mode == "linear" and where in COORDINATES and not node.attr("antialias", 0):
        corners, areas = COORDINATES[where]
        settings |= {"align_corners": corners, "align_mode": areas, "interp_method": "bilinear"}
        return node.add("bilinear_interp", {"X": x}, **settings)
    if mode == "nearest" and all(_is_floor(node, axis) for axis in axes.values()):
        settings |= {"align_corners": False, "interp_method": "nearest"}
        return node.add("nearest_interp", {"X": x}, **settings)
    return None


def _is_floor(node: Node, axis: _Axis) -> bool:
    """Whether fluid's ``nearest_interp`` takes the same elements of an axis."""
    ratio = np.float32(axis.old / axis.new)
    floors = (ratio * np.arange(axis.new, dtype=np.float32)).astype(np.int64)
    return np.array_equal(floors, _chosen(node, axis))


def _along(
    node: Node, x: Variable, number: int, weights: np.ndarray[Any, Any], axis: _Axis
) -> Variable:
    """The product of an axis with a matrix."""
    if not is_float(x.dtype):
        x = node.cast(x, VarType.FP32)
    rank = len(x.shape)
    order = [a for a in range(rank) if a != number] + [number]
    back = [order.index(a) for a in range(rank)]
    matrix = node.builder.constant(weights.T.astype(to_numpy(x.dtype)), node.prefix)
    inputs = {"X": node.transpose(x, order), "Y": matrix}
    made = node.transpose(node.add("mul", inputs, x_num_col_dims=rank - 1), back)
    if not _crops(node):
        return made
    places = axis.places("tf_crop_and_resize")
    outside = (places < 0) | (places > axis.old - 1)
    if not outside.any():
        return made
    shape = [1] * rank
    shape[number] = axis.new
    value = node.attr("extrapolation_value", 0.0)
    inside = np.where(outside, 0.0, 1.0).astype(to_numpy(x.dtype)).reshape(shape)
    added = np.where(outside, value, 0.0).astype(to_numpy(x.dtype)).reshape(shape)
    kept = node.binary("elementwise_mul", made, node.builder.constant(inside))
    return node.binary("elementwise_add", kept, node.builder.constant(added))
