"""Images in another size: nearest, linear and cubic."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpexec.engine.ops._windows import has_channels_last, size_of
from dpexec.onnx.exporting.builder import Value
from dpexec.onnx.exporting.call import Call
from dpexec.onnx.exporting.mapping import exports
from dpexec.onnx.exporting.mappings.conv2d import back, first
from dpexec.onnx.exporting.mappings.reshape import vector
from dpexec.onnx.exporting.refusals import need


def _wanted(c: Call, x: Value, axes: int) -> Value:
    """Height and width of the result, as a vector; fluid's order of what goes before what."""
    g = c.g
    parts = vector(c, "", "SizeTensor", "")
    if parts is not None:
        return parts
    if c.get("OutSize") is not None:
        made: Value = g.reshape(c.typed(c["OutSize"], c.dtype("OutSize"), np.int64), axes)
        return made
    scale, old = c.get("Scale"), size_of(c.shape("X"), c.attr("data_layout"))
    if scale is None and c.attr("scale") > 0 and min(old) > 0:
        return g.ints(*(int(n * c.attr("scale")) for n in old))
    if scale is None and not c.attr("scale") > 0:
        return g.ints(*[c.attr(name) for name in ("out_d", "out_h", "out_w")][3 - axes :])
    factor = g.constant(np.array([c.attr("scale")], np.float32)) if scale is None else scale
    size = g.cast(g.Slice(g.Shape(x), [2], [2 + axes]), np.float32)
    return g.cast(g.Floor(g.Mul(size, factor)), np.int64)


@exports(
    "bicubic_interp", "bilinear_interp", "nearest_interp", "trilinear_interp",
    without="images of 8 bits; cubic to a height or width of 1 without aligned corners",
)  # fmt: skip
def interpolate(c: Call) -> None:
    """``Resize``; ``align_corners`` and ``align_mode`` say how coordinates are transformed."""
    need(c.dtype("X").kind == "f", f"its images are {c.dtype('X')}")
    rank, last = c.rank("X"), has_channels_last(c.attr("data_layout"))
    x, kind = first(c, c["X"], rank, last), c.attr("interp_method")
    more: dict[str, Any] = {"mode": {"nearest": "nearest", "bicubic": "cubic"}.get(kind, "linear")}
    if c.attr("align_corners"):
        how = "align_corners"
    elif kind == "nearest" or (kind != "bicubic" and c.attr("align_mode") == 1):
        how = "asymmetric"
    else:
        how = "pytorch_half_pixel"
    if kind == "nearest":
        more["nearest_mode"] = "round_prefer_ceil" if c.attr("align_corners") else "floor"
    if kind == "bicubic":
        size = size_of(c.shape("Out"), c.attr("data_layout"))
        need(c.attr("align_corners") or 1 not in size, "it makes a height or width of 1")
        more["cubic_coeff_a"] = -0.75
    front = c.g.Slice(c.g.Shape(x), [0], [2])
    sizes = c.g.Concat(front, _wanted(c, x, rank - 2), axis=0)
    made = c.g.Resize(x, None, None, sizes, coordinate_transformation_mode=how, **more)
    c.set("Out", back(c, made, rank, last), lengths=())
