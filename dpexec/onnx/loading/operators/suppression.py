"""``NonMaxSuppression``: the best boxes of each class that overlap no better one too much."""

from __future__ import annotations

from typing import Any

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.onnx.loading.dims import OpenDim
from dpexec.onnx.loading.mapping import operator
from dpexec.onnx.loading.node import Node

_LEAST = -3.0e38
_MOST = 2**31 - 1
"""No image has as many boxes; exporters write this number or a larger one for no limit."""


def _number(node: Node, index: int, what: str, default: float) -> float:
    found = node.constant(index, what)
    return default if found is None else float(found.reshape(-1)[0])


@operator("NonMaxSuppression")
def non_max_suppression(node: Node) -> Any:
    """Rows of image, class and box; limits must be known."""
    count, classes = node.dims(0)[1], node.dims(1)[1]
    boxes = node.builder.size_variable(count)
    most = int(_number(node, 2, "max_output_boxes_per_class", 0))
    found = node.builder.add(
        "multiclass_nms2",
        {"BBoxes": _corners(node), "Scores": node.var(1)},
        {
            "background_label": -1,
            "score_threshold": _number(node, 4, "score_threshold", _LEAST),
            "nms_threshold": _number(node, 3, "iou_threshold", 0.0),
            "nms_top_k": -1,
            "keep_top_k": -1,
            "normalized": True,
        },
        prefix=node.prefix,
    )
    # Columns, as transposing leaves out which rows belong to which image.
    place = node.cast(node.transpose(found["Index"], [1, 0]), VarType.INT64)
    image = node.binary("elementwise_floordiv", place, boxes)
    start = node.binary("elementwise_mul", image, boxes)
    box = node.binary("elementwise_sub", place, start)
    kind = node.cast(node.slice(node.transpose(found["Out"], [1, 0]), 0, 0, 1), VarType.INT64)
    rows = node.transpose(node.concat([image, kind, box], 0), [1, 0])
    if most >= (_MOST if isinstance(count, OpenDim) else count):
        return rows
    return _first(node, rows, image, kind, most, classes)


def _corners(node: Node) -> Variable:
    """Boxes as left, top, right, bottom; any two opposite corners are given, or centers."""
    boxes = node.var(0)
    low, high = node.slice(boxes, 2, 0, 2), node.slice(boxes, 2, 2, 4)
    if node.attr("center_point_box", 0):
        half = node.scaled(high, 0.5)
        low, high = (node.binary(f"elementwise_{side}", low, half) for side in ("sub", "add"))
        return node.concat([low, high], 2)
    ends = [node.binary(f"elementwise_{side}", low, high) for side in ("min", "max")]
    return node.concat(ends, 2)


def _first(
    node: Node, rows: Variable, image: Variable, kind: Variable, most: int, classes: Any
) -> Variable:
    """The first rows of each image and class, which come in the order of their scores."""
    scaled = node.binary("elementwise_mul", image, node.builder.size_variable(classes))
    key = node.binary("elementwise_add", scaled, kind)
    same = node.binary("equal", node.transpose(key, [1, 0]), key)
    before = node.add("tril_triu", {"X": node.cast(same, VarType.FP32)}, diagonal=-1, lower=True)
    rank = node.add("reduce_sum", {"X": before}, dim=[1])
    inside = node.binary("less_than", rank, node.number(most, VarType.FP32))
    places = node.reshape(node.add("where_index", {"Condition": inside}), [-1])
    return node.add("index_select", {"X": rows, "Index": places}, dim=0)
