"""Training targets for the anchors of detectors, paired with their predictions."""

from __future__ import annotations

from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs
from dpexec.layers.indexing import gather
from dpexec.layers.manipulation import reshape

__all__ = ["retinanet_target_assign", "rpn_target_assign"]


def rpn_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    is_crowd: Variable,
    im_info: Variable,
    rpn_batch_size_per_im: int = 256,
    rpn_straddle_thresh: float = 0.0,
    rpn_fg_fraction: float = 0.5,
    rpn_positive_overlap: float = 0.7,
    rpn_negative_overlap: float = 0.3,
    use_random: bool = True,
) -> tuple[Variable, ...]:
    """Sample anchors of a region proposal network, with their predictions and targets.

    Args:
        bbox_pred: predicted shifts, ``(N, anchors, 4)``.
        cls_logits: predicted logits, ``(N, anchors, 1)``.
        anchor_box: ``(anchors, 4)``, or more dimensions before the last.
        anchor_var: not used, as in fluid.
        gt_boxes: true boxes in the unscaled images, ``(boxes, 4)``, a sequence for every image.
        is_crowd: 1 for boxes that hold a crowd, which are ignored; int32 ``(boxes, 1)``, a sequence
            for every image.
        im_info: height and width of the scaled images, and the scale, ``(N, 3)``.
        rpn_batch_size_per_im: number of anchors to sample per image.
        rpn_straddle_thresh: pixels by which an anchor may exceed the image; negative for no limit.
        rpn_fg_fraction: largest share of positive anchors among those sampled.
        rpn_positive_overlap: anchors that overlap a true box by this or more are positive; so are
            the anchors that overlap a true box most.
        rpn_negative_overlap: anchors whose overlaps are all below this are negative, even if they
            are also among the positive ones.
        use_random: whether to sample at random, or to take the first anchors.

    Returns:
        Predicted logits ``(picked, 1)``, predicted shifts ``(positive, 4)``, labels 1 and 0
        ``(picked, 1)``, shifts to predict ``(positive, 4)``, and their weights ``(positive, 4)``:
        1, or 0 in rows that replace anchors which became negative. Source: Paddle op
        ``rpn_target_assign``.

    Raises:
        TypeError: ``bbox_pred``, ``cls_logits``, ``anchor_box``, ``anchor_var``, ``gt_boxes`` or
            ``im_info`` is no variable of type float32 or float64; ``is_crowd`` is no variable of
            type int32.
        EnforceNotMet: boxes do not have four numbers each, or the scores do not fit them.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> anchors = np.array([[0, 0, 9, 9], [20, 20, 29, 29]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     shifts, logits = fluid.data("shifts", [1, 2, 4]), fluid.data("logits", [1, 2, 1])
        ...     boxes = fluid.data("boxes", [None, 4], lod_level=1)
        ...     crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
        ...     info = fluid.layers.assign(np.array([[32, 32, 1]], "float32"))
        ...     at = fluid.layers.assign(anchors)
        ...     made = fluid.layers.rpn_target_assign(
        ...         shifts, logits, at, at, boxes, crowd, info, use_random=False
        ...     )
        ...     feed = {"shifts": np.zeros([1, 2, 4], "float32")}
        ...     feed["logits"] = np.zeros([1, 2, 1], "float32")
        ...     place = fluid.CPUPlace()
        ...     feed["boxes"] = fluid.create_lod_tensor(anchors[:1], [[1]], place)
        ...     feed["crowd"] = fluid.create_lod_tensor(np.zeros([1, 1], "int32"), [[1]], place)
        ...     exe = fluid.Executor(place)
        ...     (found,) = exe.run(feed=feed, fetch_list=[made[2]], return_numpy=False)
        >>> np.array(found).tolist()  # the first anchor covers the true box, the second nothing
        [[1], [0]]
    """
    floats = {"bbox_pred": bbox_pred, "cls_logits": cls_logits, "anchor_box": anchor_box}
    floats |= {"anchor_var": anchor_var, "gt_boxes": gt_boxes, "im_info": im_info}
    _check("rpn_target_assign", floats, {"is_crowd": is_crowd})
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {
        "rpn_batch_size_per_im": rpn_batch_size_per_im,
        "rpn_straddle_thresh": rpn_straddle_thresh,
        "rpn_positive_overlap": rpn_positive_overlap,
        "rpn_negative_overlap": rpn_negative_overlap,
        "rpn_fg_fraction": rpn_fg_fraction,
        "use_random": use_random,
    }
    made = _assign("rpn_target_assign", inputs, attrs)
    return _beside_predictions(made, bbox_pred, cls_logits, 1)


def retinanet_target_assign(
    bbox_pred: Variable,
    cls_logits: Variable,
    anchor_box: Variable,
    anchor_var: Variable,
    gt_boxes: Variable,
    gt_labels: Variable,
    is_crowd: Variable,
    im_info: Variable,
    num_classes: int = 1,
    positive_overlap: float = 0.5,
    negative_overlap: float = 0.4,
) -> tuple[Variable, ...]:
    """Positive and negative anchors of a RetinaNet, with their predictions and targets.

    Args:
        bbox_pred: predicted shifts, ``(N, anchors, 4)``.
        cls_logits: predicted logits, ``(N, anchors, num_classes)``.
        anchor_box: ``(anchors, 4)``.
        anchor_var: not used, as in fluid.
        gt_boxes: true boxes in the unscaled images, ``(boxes, 4)``, a sequence for every image.
        gt_labels: classes of the true boxes, int32 ``(boxes, 1)``, a sequence for every image.
        is_crowd: 1 for boxes that hold a crowd, which are ignored; int32 ``(boxes, 1)``, a sequence
            for every image.
        im_info: height and width of the scaled images, and the scale, ``(N, 3)``.
        num_classes: number of classes, without the background.
        positive_overlap: anchors that overlap a true box by this or more are positive; so are the
            anchors that overlap a true box most.
        negative_overlap: anchors whose overlaps are all below this are negative, even if they are
            also among the positive ones.

    Returns:
        Predicted logits ``(picked, num_classes)``, predicted shifts ``(positive, 4)``, classes
        ``(picked, 1)``, 0 for negative anchors, shifts to predict ``(positive, 4)``, their weights
        ``(positive, 4)`` as of :func:`rpn_target_assign`, and per image the number of positive
        anchors plus one, ``(N, 1)``, for ``sigmoid_focal_loss``. Source: Paddle op
        ``retinanet_target_assign``.

    Raises:
        TypeError: ``bbox_pred``, ``cls_logits``, ``anchor_box``, ``anchor_var``, ``gt_boxes`` or
            ``im_info`` is no variable of type float32 or float64; ``gt_labels`` or ``is_crowd`` is
            no variable of type int32.
        EnforceNotMet: boxes do not have four numbers each, or the scores do not fit them.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> anchors = np.array([[0, 0, 9, 9], [20, 20, 29, 29]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     shifts, logits = fluid.data("shifts", [1, 2, 4]), fluid.data("logits", [1, 2, 3])
        ...     boxes = fluid.data("boxes", [None, 4], lod_level=1)
        ...     kinds = fluid.data("kinds", [None, 1], "int32", lod_level=1)
        ...     crowds = fluid.data("crowds", [None, 1], "int32", lod_level=1)
        ...     info = fluid.layers.assign(np.array([[32, 32, 1]], "float32"))
        ...     at = fluid.layers.assign(anchors)
        ...     made = fluid.layers.retinanet_target_assign(
        ...         shifts, logits, at, at, boxes, kinds, crowds, info, num_classes=3
        ...     )
        ...     def fed(values, dtype):
        ...         return fluid.create_lod_tensor(np.array(values, dtype), [[1]], fluid.CPUPlace())
        ...     feed = {"boxes": fed(anchors[:1], "float32"), "kinds": fed([[2]], "int32")}
        ...     feed |= {"crowds": fed([[0]], "int32"), "shifts": np.zeros((1, 2, 4), "float32")}
        ...     feed["logits"] = np.zeros((1, 2, 3), "float32")
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[made[2]], return_numpy=False)
        >>> np.array(found).ravel().tolist()  # the first anchor is the object of class 2
        [2, 0]
    """
    floats = {"bbox_pred": bbox_pred, "cls_logits": cls_logits, "anchor_box": anchor_box}
    floats |= {"anchor_var": anchor_var, "gt_boxes": gt_boxes, "im_info": im_info}
    integers = {"gt_labels": gt_labels, "is_crowd": is_crowd}
    _check("retinanet_target_assign", floats, integers)
    inputs = {"Anchor": anchor_box, "GtBoxes": gt_boxes, "GtLabels": gt_labels}
    inputs |= {"IsCrowd": is_crowd, "ImInfo": im_info}
    attrs = {"positive_overlap": positive_overlap, "negative_overlap": negative_overlap}
    made = _assign("retinanet_target_assign", inputs, attrs, counts=True)
    found = _beside_predictions(made, bbox_pred, cls_logits, num_classes)
    return (*found, made["ForegroundNumber"])


def _check(layer: str, floats: dict[str, Variable], integers: dict[str, Variable]) -> None:
    for argument, variable in floats.items():
        check_variable_and_dtype(variable, argument, SINGLE_DOUBLE, layer)
    for argument, variable in integers.items():
        check_variable_and_dtype(variable, argument, ("int32",), layer)


def _assign(
    op_type: str, inputs: dict[str, Variable], attrs: dict[str, Any], counts: bool = False
) -> dict[str, Variable]:
    """Add the operator; returns its outputs by slot."""
    dtype = inputs["Anchor"].dtype
    dtypes: dict[str, Any] = dict.fromkeys(("LocationIndex", "ScoreIndex", "TargetLabel"), "int32")
    dtypes |= {"TargetBBox": dtype, "BBoxInsideWeight": dtype}
    if counts:
        dtypes["ForegroundNumber"] = "int32"
    return add_outputs(LayerHelper(op_type), inputs, dtypes, attrs, stop_gradient=True)


def _beside_predictions(
    made: dict[str, Variable], bbox_pred: Variable, cls_logits: Variable, classes: int
) -> tuple[Variable, ...]:
    """Predictions and targets of the sampled anchors."""
    logits = reshape(x=cls_logits, shape=(-1, classes))
    shifts = reshape(x=bbox_pred, shape=(-1, 4))
    return (
        gather(logits, made["ScoreIndex"]),
        gather(shifts, made["LocationIndex"]),
        made["TargetLabel"],
        made["TargetBBox"],
        made["BBoxInsideWeight"],
    )
