"""Object detection on a grid of cells (YOLO)."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.checks import check_type
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["yolo_box", "yolov3_loss"]


def yolov3_loss(
    x: Variable,
    gt_box: Variable,
    gt_label: Variable,
    anchors: Sequence[int],
    anchor_mask: Sequence[int],
    class_num: int,
    ignore_thresh: float,
    downsample_ratio: int,
    gt_score: Variable | None = None,
    use_label_smooth: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> Variable:
    """The loss of YOLOv3's predictions on one grid.

    Args:
        x: box, objectness score and class scores for each anchor of ``anchor_mask``, ``(N, anchors
            * (5 + class_num), H, W)``.
        gt_box: centres and sizes of objects, relative to the image's size, ``(N, B, 4)``; unused
            rows have size 0.
        gt_label: classes of the objects, int32 ``(N, B)``.
        anchors: widths and heights in pixels, in turn, of the anchors of all grids.
        anchor_mask: indices of this grid's anchors.
        class_num: number of classes.
        ignore_thresh: predictions that overlap an object by more are not treated as negative.
        downsample_ratio: pixels of the image per cell.
        gt_score: weights of the objects, ``(N, B)``; 1 by default.
        use_label_smooth: whether to smooth the target classes.
        name: prefix of names.
        scale_x_y: scale of the offset of a box's centre from the middle of its cell.

    Returns:
        ``(N,)``. Source: Paddle op ``yolov3_loss``; Redmon and Farhadi, 2018 (YOLOv3).

    Raises:
        TypeError: an argument has the wrong type.

    See Also:
        :func:`yolo_box`: boxes from the scores of YOLOv3.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.data("x", [None, 21, 13, 13])  # three anchors of 5 + 2 numbers
        ...     box = fluid.data("box", [None, 6, 4])
        ...     label = fluid.data("label", [None, 6], "int32")
        ...     anchors = [10, 13, 16, 30, 33, 23]
        ...     fluid.layers.yolov3_loss(x, box, label, anchors, [0, 1, 2], 2, 0.7, 32).shape
        (-1,)
    """
    layer = "yolov3_loss"
    for argument, value in (("x", x), ("gt_box", gt_box), ("gt_label", gt_label)):
        check_type(value, argument, Variable, layer)
    check_type(gt_score, "gt_score", (Variable, type(None)), layer)
    for argument, numbers in (("anchors", anchors), ("anchor_mask", anchor_mask)):
        check_type(numbers, argument, (list, tuple), layer)
    check_type(class_num, "class_num", int, layer)
    check_type(ignore_thresh, "ignore_thresh", float, layer)
    check_type(use_label_smooth, "use_label_smooth", bool, layer)
    inputs = {"X": x, "GTBox": gt_box, "GTLabel": gt_label, "GTScore": gt_score}
    helper = LayerHelper(layer, name=name)
    dtypes = {"Loss": x.dtype, "ObjectnessMask": x.dtype, "GTMatchMask": "int32"}
    attrs = {
        "anchors": list(anchors),
        "anchor_mask": list(anchor_mask),
        "class_num": class_num,
        "ignore_thresh": ignore_thresh,
        "downsample_ratio": downsample_ratio,
        "use_label_smooth": use_label_smooth,
        "scale_x_y": scale_x_y,
    }
    return add_outputs(helper, inputs, dtypes, attrs)["Loss"]


def yolo_box(
    x: Variable,
    img_size: Variable,
    anchors: Sequence[int],
    class_num: int,
    conf_thresh: float,
    downsample_ratio: int,
    clip_bbox: bool = True,
    name: str | None = None,
    scale_x_y: float = 1.0,
) -> tuple[Variable, Variable]:
    """Decode the predictions on one grid to boxes and scores.

    Args:
        x: as for :func:`yolov3_loss`.
        img_size: height and width of every image, int32 ``(N, 2)``.
        anchors: widths and heights in pixels, in turn, of this grid's anchors.
        class_num: number of classes.
        conf_thresh: boxes with a lower objectness score are set to 0, and their scores, too.
        downsample_ratio: pixels of the image per cell.
        clip_bbox: whether to clip boxes to the image.
        name: prefix of names.
        scale_x_y: scale of the offset of a box's centre from the middle of its cell.

    Returns:
        Boxes in pixels, ``(N, anchors * H * W, 4)``, and scores of classes, ``(N, anchors * H * W,
        class_num)``. Source: Paddle op ``yolo_box``; Redmon and Farhadi, 2018 (YOLOv3).

    Raises:
        TypeError: an argument has the wrong type.

    See Also:
        :func:`yolov3_loss`: their loss.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 14, 13, 13])
        ...     size = fluid.data("size", [None, 2], "int32")
        ...     boxes, scores = fluid.layers.yolo_box(x, size, [10, 13, 16, 30], 2, 0.01, 32)
        ...     boxes.shape, scores.shape
        ((-1, 338, 4), (-1, 338, 2))
    """
    for argument, value in (("x", x), ("img_size", img_size)):
        check_type(value, argument, Variable, "yolo_box")
    check_type(anchors, "anchors", (list, tuple), "yolo_box")
    check_type(class_num, "class_num", int, "yolo_box")
    check_type(conf_thresh, "conf_thresh", float, "yolo_box")
    helper = LayerHelper("yolo_box", name=name)
    attrs = {
        "anchors": list(anchors),
        "class_num": class_num,
        "conf_thresh": conf_thresh,
        "downsample_ratio": downsample_ratio,
        "clip_bbox": clip_bbox,
        "scale_x_y": scale_x_y,
    }
    dtypes = {"Boxes": x.dtype, "Scores": x.dtype}
    made = add_outputs(helper, {"X": x, "ImgSize": img_size}, dtypes, attrs)
    return made["Boxes"], made["Scores"]
