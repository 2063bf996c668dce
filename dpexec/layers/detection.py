"""Single-shot detection: predictions at prior boxes, their loss, and the detected objects.

In fluid this module holds all layers of object detection.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs
from dpexec.layers.indexing import slice
from dpexec.layers.loss import softmax_with_cross_entropy
from dpexec.layers.manipulation import flatten, reshape, shape, transpose
from dpexec.layers.matching import bipartite_match, box_coder, iou_similarity, target_assign
from dpexec.layers.nn import softmax
from dpexec.layers.reductions import reduce_sum
from dpexec.layers.regression_loss import smooth_l1
from dpexec.layers.suppression import found_boxes
from dpexec.layers.tensor import cast

__all__ = ["detection_output", "sigmoid_focal_loss", "ssd_loss"]


def detection_output(
    loc: Variable,
    scores: Variable,
    prior_box: Variable,
    prior_box_var: Variable,
    background_label: int = 0,
    nms_threshold: float = 0.3,
    nms_top_k: int = 400,
    keep_top_k: int = 200,
    score_threshold: float = 0.01,
    nms_eta: float = 1.0,
    return_index: bool = False,
) -> Variable | tuple[Variable, Variable]:
    """The objects detected by a single-shot detector.

    Args:
        loc: predicted boxes relative to prior boxes, ``(N, M, 4)``.
        scores: predictions of classes before softmax, ``(N, M, classes)``.
        prior_box: ``(M, 4)``.
        prior_box_var: variances of the prior boxes, ``(M, 4)``.
        background_label: the background class. The original always uses 0.
        nms_threshold: intersection over union above which a box covers another.
        nms_top_k: number of best boxes per class to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        score_threshold: boxes with this score or less are left out.
        nms_eta: as for :func:`multiclass_nms`. The original always uses 1.
        return_index: whether to return the boxes' indices, too.

    Returns:
        Rows of label, score and box, ``(found, 6)``, one sequence per image; one row with the
        single number -1 if nothing is found. With ``return_index`` also the boxes' indices, int32
        ``(found, 1)``; then there are no rows if nothing is found. Source: Paddle ops
        ``box_coder``, ``multiclass_nms``, ``multiclass_nms2``; Liu and others, 2016 (SSD).

    Raises:
        TypeError: an input is no variable.
        EnforceNotMet: the boxes do not have three dimensions, or do not fit.
        ValueError: the scores do not have three dimensions.

    See Also:
        :func:`ssd_loss`: the loss.
        :func:`multi_box_head`: the layers before both.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     offsets = fluid.data("offsets", [2, 10, 4])
        ...     scores = fluid.data("scores", [2, 10, 21])
        ...     prior, variances = fluid.data("prior", [10, 4]), fluid.data("variances", [10, 4])
        ...     found = fluid.layers.detection_output(offsets, scores, prior, variances)
        ...     found.shape[1]  # label, score and box
        6
    """
    boxes = box_coder(prior_box, prior_box_var, loc, "decode_center_size")
    likely = transpose(softmax(scores), [0, 2, 1])
    likely.stop_gradient = True
    attrs = {
        "background_label": background_label,
        "nms_threshold": float(nms_threshold),
        "nms_top_k": nms_top_k,
        "keep_top_k": keep_top_k,
        "score_threshold": float(score_threshold),
        "nms_eta": float(nms_eta),
    }
    op_type = "multiclass_nms2" if return_index else "multiclass_nms"
    found, index = found_boxes(
        op_type, boxes, likely, attrs, None, layer="detection_output", with_index=return_index
    )
    return (found, index) if return_index else found


def detection_map(
    detect_res: Variable,
    label: Variable,
    class_num: int,
    background_label: int = 0,
    overlap_threshold: float = 0.3,
    evaluate_difficult: bool = True,
    has_state: Variable | None = None,
    input_states: Sequence[Variable] | None = None,
    out_states: Sequence[Variable] | None = None,
    ap_version: str = "integral",
) -> Variable:
    """Mean average precision; only in ``layers.detection``, as in fluid.

    Args:
        detect_res: rows of label, score and box, ``(found, 6)``, one sequence per image.
        label: rows of label, optionally 1 for difficult objects, and box: ``(objects, 6)`` or
            ``(objects, 5)``, one sequence per image.
        class_num: number of classes.
        background_label: ignored; accepted for compatibility. Classes without objects do not count.
        overlap_threshold: intersection over union above which a detection is right.
        evaluate_difficult: whether difficult objects count.
        has_state: int32 ``(1,)``: 0 to ignore ``input_states``.
        input_states: counts of earlier batches: objects per class, right and wrong detections.
        out_states: variables for these counts after this batch.
        ap_version: ``"integral"`` or ``"11point"``.

    Returns:
        ``(1,)``. Source: Paddle op ``detection_map``.

    Raises:
        TypeError: ``detect_res`` or ``label`` is no variable.
        EnforceNotMet: the rows of an input have the wrong number of columns.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     found = fluid.data("found", [None, 6], lod_level=1)  # label, score, box
        ...     true = fluid.data("true", [None, 5], lod_level=1)  # label, box
        ...     score = fluid.layers.detection.detection_map(found, true, class_num=2)
        ...     place = fluid.CPUPlace()
        ...     one = np.array([[1, 0, 0, 1, 1]], "float32")
        ...     two = np.array([[1, 0.9, 5, 5, 6, 6], [1, 0.8, 0, 0, 1, 1]], "float32")
        ...     feed = {"true": fluid.create_lod_tensor(one, [[1]], place)}
        ...     feed["found"] = fluid.create_lod_tensor(two, [[2]], place)  # the second is right
        ...     fluid.Executor(place).run(feed=feed, fetch_list=[score])
        [array([0.5], dtype=float32)]
    """
    helper = LayerHelper("detection_map")
    mean = helper.create_variable_for_type_inference("float32")
    made = out_states or [
        helper.create_variable_for_type_inference(dtype)
        for dtype in ("int32", "float32", "float32")
    ]
    inputs = {"Label": label, "DetectRes": detect_res}
    if has_state is not None:
        inputs["HasState"] = has_state
    inputs |= dict(zip(("PosCount", "TruePos", "FalsePos"), input_states or (), strict=False))
    slots = ("AccumPosCount", "AccumTruePos", "AccumFalsePos")
    helper.append_op(
        type="detection_map",
        inputs=inputs,
        outputs={"MAP": mean, **dict(zip(slots, made, strict=True))},
        attrs={
            "overlap_threshold": overlap_threshold,
            "evaluate_difficult": evaluate_difficult,
            "ap_type": ap_version,
            "class_num": class_num,
        },
    )
    return mean


def ssd_loss(
    location: Variable,
    confidence: Variable,
    gt_box: Variable,
    gt_label: Variable,
    prior_box: Variable,
    prior_box_var: Variable | None = None,
    background_label: int = 0,
    overlap_threshold: float = 0.5,
    neg_pos_ratio: float = 3.0,
    neg_overlap: float = 0.5,
    loc_loss_weight: float = 1.0,
    conf_loss_weight: float = 1.0,
    match_type: str = "per_prediction",
    mining_type: str = "max_negative",
    normalize: bool = True,
    sample_size: int | None = None,
) -> Variable:
    """The loss of a single-shot detector: of boxes matched with objects, and of classes.

    Args:
        location: predicted boxes relative to prior boxes, ``(N, M, 4)``.
        confidence: predictions of classes before softmax, ``(N, M, classes)``.
        gt_box: the objects' boxes, ``(objects, 4)``, one sequence per image.
        gt_label: the objects' classes, ``(objects, 1)`` with the same sequences.
        prior_box: ``(M, 4)``.
        prior_box_var: variances of the prior boxes, ``(M, 4)``; required, although optional in
            fluid.
        background_label: the background class.
        overlap_threshold: least intersection over union that matches a prior box with an object.
        neg_pos_ratio: number of negative predictions that count, per positive one.
        neg_overlap: intersection over union below which a prediction can be negative.
        loc_loss_weight: weight of the loss of boxes.
        conf_loss_weight: weight of the loss of classes.
        match_type: as for :func:`bipartite_match`.
        mining_type: only ``"max_negative"``: the negative predictions with the greatest loss count.
        normalize: whether to divide by the number of predictions with an object.
        sample_size: ignored; it belongs to a mining type that is not supported.

    Returns:
        ``(N, 1)``. Source: Liu and others, 2016 (SSD).

    Raises:
        ValueError: ``mining_type`` has another value.

    See Also:
        :func:`detection_output`: the boxes in prediction.
        :func:`multi_box_head`: the layers before both.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     offsets = fluid.data("offsets", [None, 10, 4])
        ...     scores = fluid.data("scores", [None, 10, 21])
        ...     prior, variances = fluid.data("prior", [10, 4]), fluid.data("variances", [10, 4])
        ...     box = fluid.data("box", [None, 4], lod_level=1)
        ...     label = fluid.data("label", [None, 1], "int32", lod_level=1)
        ...     fluid.layers.ssd_loss(offsets, scores, box, label, prior, variances).shape
        (-1, 1)
    """
    if mining_type != "max_negative":
        raise ValueError(f"mining_type must be 'max_negative', but is {mining_type!r}")
    counts = shape(confidence)
    overlap = iou_similarity(gt_box, prior_box)
    matches, scores = bipartite_match(overlap, match_type, overlap_threshold)
    gt_label = reshape(gt_label, [0] * (len(gt_label.shape) - 1) + [-1, 1])
    gt_label.stop_gradient = True
    label, _ = target_assign(gt_label, matches, mismatch_value=background_label)
    confidence = flatten(confidence, axis=2)
    label = _constant(flatten(cast(label, "int64"), axis=2))
    actual = _constant(slice(counts, axes=[0], starts=[0], ends=[2]))
    losses = reshape(
        softmax_with_cross_entropy(confidence, label), shape=[-1, 0], actual_shape=actual
    )
    losses.set_spec(losses.spec.replace(shape=matches.shape))  # 0 stands for the one column before
    attrs = {
        "neg_pos_ratio": neg_pos_ratio, "neg_dist_threshold": neg_overlap,
        "mining_type": mining_type, "sample_size": sample_size,
    }  # fmt: skip
    negatives, matches = _mined(_constant(losses), matches, scores, attrs)
    code = box_coder(prior_box, prior_box_var, gt_box)
    box, box_weight = target_assign(code, matches, mismatch_value=background_label)
    label, label_weight = target_assign(gt_label, matches, negatives, background_label)
    label = _constant(cast(flatten(label, axis=2), "int64"))
    label_loss = softmax_with_cross_entropy(confidence, label)
    label_loss = label_loss * _constant(flatten(label_weight, axis=2))
    box_loss = smooth_l1(flatten(location, axis=2), _constant(flatten(box, axis=2)))
    box_weight = _constant(flatten(box_weight, axis=2))
    box_loss = box_loss * box_weight
    loss = conf_loss_weight * label_loss + loc_loss_weight * box_loss
    loss = reshape(loss, shape=[-1, 0], actual_shape=actual)
    loss = reduce_sum(loss, dim=1, keep_dim=True)
    return loss / reduce_sum(box_weight) if normalize else loss


def _constant(variable: Variable) -> Variable:
    """The same variable; gradients stop there."""
    variable.stop_gradient = True
    return variable


def _mined(
    losses: Variable, matches: Variable, scores: Variable, attrs: dict[str, Any]
) -> tuple[Variable, Variable]:
    """Negative predictions that count, and the updated matches."""
    inputs = {"ClsLoss": losses, "MatchIndices": matches, "MatchDist": scores}
    dtypes = {"NegIndices": "int32", "UpdatedMatchIndices": "int32"}
    helper = LayerHelper("ssd_loss")
    made = add_outputs(helper, inputs, dtypes, attrs, op_type="mine_hard_examples")
    return made["NegIndices"], made["UpdatedMatchIndices"]


def sigmoid_focal_loss(
    x: Variable, label: Variable, fg_num: Variable, gamma: float = 2.0, alpha: float = 0.25
) -> Variable:
    """Focal loss: cross entropy of independent classes with less weight for easy samples.

    Args:
        x: scores ``(N, classes)``.
        label: int32 ``(N, 1)``: classes from 1 on; 0 is background, -1 is ignored.
        fg_num: number of foreground samples, int32 ``(1,)``; losses are divided by it.
        gamma: exponent that reduces the weight of easy samples.
        alpha: weight of the true class; the other classes have ``1 - alpha``.

    Returns:
        The shape of ``x``. Source: Paddle op ``sigmoid_focal_loss``; Lin and others, 2017.

    Raises:
        TypeError: ``x`` is no variable, or ``label`` or ``fg_num`` is not of type int32.
        EnforceNotMet: the rows of ``label`` are not those of ``x``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     scores = fluid.layers.assign(np.array([[2.0], [-1.0]], "float32"))
        ...     label = fluid.layers.assign(np.array([[1], [0]], "int32"))
        ...     count = fluid.layers.assign(np.array([1], "int32"))
        ...     out = fluid.layers.sigmoid_focal_loss(scores, label, count)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.0005],
               [0.017 ]], dtype=float32)
    """
    op_type = "sigmoid_focal_loss"
    check_variable_and_dtype(x, "x", SINGLE_DOUBLE, op_type)
    check_variable_and_dtype(label, "label", ("int32",), op_type)
    check_variable_and_dtype(fg_num, "fg_num", ("int32",), op_type)
    inputs = {"X": x, "Label": label, "FgNum": fg_num}
    return add_op(op_type, inputs, x.dtype, {"gamma": gamma, "alpha": alpha})
