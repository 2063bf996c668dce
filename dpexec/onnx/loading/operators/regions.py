"""``RoiAlign`` and ``MaxRoiPool``: regions of images."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node


@operator("RoiAlign")
def roi_align(node: Node) -> Any:
    """Means of points between pixels; regions are sorted by their images, and back."""
    if node.attr("mode", "avg") != "avg":
        node.fail("the largest of interpolated elements is not supported")
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    mode = node.attr("coordinate_transformation_mode", default)
    return _by_image(
        node,
        "roi_align",
        node.var(1),
        node.var(2),
        aligned=mode == "half_pixel",
        pooled_height=node.attr("output_height", 1),
        pooled_width=node.attr("output_width", 1),
        sampling_ratio=node.attr("sampling_ratio", 0) or -1,
        spatial_scale=float(node.attr("spatial_scale", 1.0)),
    )


def _by_image(node: Node, op_type: str, regions: Variable, images: Variable, **attrs: Any) -> Any:
    """An operator on regions that lie image by image, its results in the order of the node.

    Args:
        node: the node; its first input are the images.
        op_type: type of the operator.
        regions: left, top, right and bottom of each, [regions, 4].
        images: the number of each one's image, [regions].
        attrs: the operator's attributes.
    """
    images = node.cast(images, VarType.INT64)
    order = node.add("argsort", {"X": images}, "Indices", axis=0)
    back = node.add("argsort", {"X": order}, "Indices", axis=0)
    ends = node.add("size", {"Input": images})  # offsets of the images: those before, and all
    count = node.builder.size_variable(node.dims(0)[0])
    numbers = node.add("range", {"Start": node.number(0, VarType.INT64), "End": count,
                                 "Step": node.number(1, VarType.INT64)})  # fmt: skip
    earlier = node.binary("less_than", node.unsqueeze(images, [0]), node.unsqueeze(numbers, [1]))
    before = node.add("reduce_sum", {"X": node.cast(earlier, VarType.INT64)}, dim=[1])
    offsets = node.concat([before, node.reshape(ends, [1])], 0)
    given = {
        "X": node.var(0),
        "ROIs": node.add("gather", {"X": regions, "Index": order}),
        "RoisLod": offsets,
    }
    made = node.add(op_type, given, **attrs)
    return node.add("gather", {"X": made, "Index": back})
