"""Region proposals: generating and labelling them, and decoding their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = [
    "box_decoder_and_assign",
    "generate_mask_labels",
    "generate_proposal_labels",
    "generate_proposals",
]


def _fixed_outputs(
    op_type: str,
    inputs: Mapping[str, Any],
    attrs: Mapping[str, Any],
    dtypes: Mapping[str, Any],
    name: str | None = None,
) -> tuple[Variable, ...]:
    """Add an operator without gradient; returns its outputs in the order of ``dtypes``."""
    helper = LayerHelper(op_type, name=name)
    return tuple(add_outputs(helper, inputs, dtypes, attrs, stop_gradient=True).values())


def generate_proposals(
    scores: Variable,
    bbox_deltas: Variable,
    im_info: Variable,
    anchors: Variable,
    variances: Variable,
    pre_nms_top_n: int = 6000,
    post_nms_top_n: int = 1000,
    nms_thresh: float = 0.5,
    min_size: float = 0.1,
    eta: float = 1.0,
    name: str | None = None,
    return_rois_num: bool = False,
) -> tuple[Variable, ...]:
    """Proposals: the best anchors after their shifts, without those that overlap better ones.

    Args:
        scores: scores of the anchors, float32 ``(N, A, H, W)``.
        bbox_deltas: shifts of the anchors, float32 ``(N, 4 * A, H, W)``.
        im_info: height and width of the scaled images, and the scale, ``(N, 3)``.
        anchors: float32 ``(H, W, A, 4)``.
        variances: factors of the shifts, in the shape of ``anchors``.
        pre_nms_top_n: number of best anchors per image to consider.
        post_nms_top_n: largest number of proposals per image.
        nms_thresh: largest allowed overlap with a better proposal.
        min_size: least height and width of a proposal, in pixels of the unscaled image; at least 1.
        eta: if below 1, ``nms_thresh`` is multiplied by it after each proposal kept, as long as it
            is above 0.5.
        name: prefix of names.
        return_rois_num: also return the number of proposals up to and including each image,
            ``(N,)``.

    Returns:
        Boxes ``(rois, 4)`` and their scores ``(rois, 1)``, a sequence for every image, best first.
        Source: Paddle op ``generate_proposals``.

    Raises:
        TypeError: ``scores``, ``bbox_deltas``, ``anchors`` or ``variances`` is no variable of type
            float32; ``im_info`` is no variable of type float32 or float64.
        EnforceNotMet: ``scores`` is no images, or ``bbox_deltas`` does not have four channels for
            each of its.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> boxes = np.array([[[[0, 0, 9, 9], [1, 0, 10, 9], [20, 20, 29, 29]]]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     def of(values):
        ...         return fluid.layers.assign(np.array(values, "float32"))
        ...     scores = of([[[[0.9]], [[0.8]], [[0.7]]]])  # an image, three anchors, one position
        ...     shifts, info = of(np.zeros([1, 12, 1, 1])), of([[32, 32, 1]])
        ...     rois, best = fluid.layers.generate_proposals(
        ...         scores, shifts, info, of(boxes), of(np.ones_like(boxes)), nms_thresh=0.5
        ...     )
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(fetch_list=[rois], return_numpy=False)
        >>> np.array(found).tolist()  # the second box overlaps the first, which is better
        [[0.0, 0.0, 9.0, 9.0], [20.0, 20.0, 29.0, 29.0]]
    """
    given = {"scores": scores, "bbox_deltas": bbox_deltas, "im_info": im_info}
    given |= {"anchors": anchors, "variances": variances}
    for argument, variable in given.items():
        types = SINGLE_DOUBLE if argument == "im_info" else ("float32",)
        check_variable_and_dtype(variable, argument, types, "generate_proposals")
    made = _fixed_outputs(
        "generate_proposals",
        {
            "Scores": scores,
            "BboxDeltas": bbox_deltas,
            "ImInfo": im_info,
            "Anchors": anchors,
            "Variances": variances,
        },
        {
            "pre_nms_topN": pre_nms_top_n,
            "post_nms_topN": post_nms_top_n,
            "nms_thresh": nms_thresh,
            "min_size": min_size,
            "eta": eta,
        },
        {"RpnRois": bbox_deltas.dtype, "RpnRoiProbs": scores.dtype, "RpnRoisLod": "int32"},
        name,
    )
    return made if return_rois_num else made[:2]


def generate_proposal_labels(
    rpn_rois: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_boxes: Variable,
    im_info: Variable,
    batch_size_per_im: int = 256,
    fg_fraction: float = 0.25,
    fg_thresh: float = 0.25,
    bg_thresh_hi: float = 0.5,
    bg_thresh_lo: float = 0.0,
    bbox_reg_weights: Sequence[float] = [0.1, 0.1, 0.2, 0.2],
    class_nums: int | None = None,
    use_random: bool = True,
    is_cls_agnostic: bool = False,
    is_cascade_rcnn: bool = False,
) -> tuple[Variable, ...]:
    """Sample proposed and true boxes, with their target classes and shifts.

    Args:
        rpn_rois: proposed boxes, ``(rois, 4)``, a sequence for every image.
        gt_classes: classes of the true boxes, int32 ``(boxes, 1)``, a sequence for every image.
        is_crowd: 1 for true boxes that hold a crowd, which are not sampled; int32 ``(boxes, 1)``,
            likewise.
        gt_boxes: true boxes in the unscaled images, ``(boxes, 4)``, likewise.
        im_info: height and width of the scaled images, and the scale, ``(images, 3)``.
        batch_size_per_im: number of boxes to sample per image.
        fg_fraction: largest share of foreground boxes among them.
        fg_thresh: least overlap with a true box that makes a box foreground.
        bg_thresh_hi: background boxes have overlaps below this, and below ``fg_thresh``.
        bg_thresh_lo: background boxes have overlaps of at least this.
        bbox_reg_weights: divisors of the four numbers of a shift.
        class_nums: number of classes, with the background, which is class 0.
        use_random: whether to sample at random, or to take the first boxes.
        is_cls_agnostic: whether shifts do not depend on the class.
        is_cascade_rcnn: whether ``rpn_rois`` come from an earlier stage: then all of them with an
            area are taken, and no true boxes.

    Returns:
        Boxes in the scaled images ``(picked, 4)``, classes ``(picked, 1)``; then shifts, weights
        inside the loss and weights outside of it, ``(picked, 4 * class_nums)`` each: the four
        columns of a box's class have its shift and weight 1, all others are 0. All have a sequence
        for every image. Source: Paddle op ``generate_proposal_labels``.

    Raises:
        TypeError: ``rpn_rois`` is no variable of type float32 or float64; ``gt_classes`` or
            ``is_crowd`` is no variable of type int32.
        EnforceNotMet: boxes do not have four numbers each, or the labels do not fit them.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     proposed = fluid.data("proposed", [None, 4], lod_level=1)
        ...     kinds = fluid.data("kinds", [None, 1], "int32", lod_level=1)
        ...     crowds = fluid.data("crowds", [None, 1], "int32", lod_level=1)
        ...     boxes = fluid.data("boxes", [None, 4], lod_level=1)
        ...     info = fluid.layers.assign(np.array([[32, 32, 1]], "float32"))
        ...     made = fluid.layers.generate_proposal_labels(
        ...         proposed, kinds, crowds, boxes, info, class_nums=3, use_random=False
        ...     )
        ...     def fed(values, dtype):
        ...         values = np.array(values, dtype)
        ...         return fluid.create_lod_tensor(values, [[len(values)]], fluid.CPUPlace())
        ...     feed = {"proposed": fed([[0, 0, 9, 8], [20, 20, 29, 29]], "float32")}
        ...     feed |= {"kinds": fed([[2]], "int32"), "crowds": fed([[0]], "int32")}
        ...     feed["boxes"] = fed([[0, 0, 9, 9]], "float32")
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[made[1]], return_numpy=False)
        >>> np.array(found).ravel().tolist()  # the first, the true box, the second
        [2, 2, 0]
    """
    layer = "generate_proposal_labels"
    check_variable_and_dtype(rpn_rois, "rpn_rois", SINGLE_DOUBLE, layer)
    check_variable_and_dtype(gt_classes, "gt_classes", ("int32",), layer)
    check_variable_and_dtype(is_crowd, "is_crowd", ("int32",), layer)
    float_slots = ("BboxTargets", "BboxInsideWeights", "BboxOutsideWeights")
    return _fixed_outputs(
        layer,
        {
            "RpnRois": rpn_rois,
            "GtClasses": gt_classes,
            "IsCrowd": is_crowd,
            "GtBoxes": gt_boxes,
            "ImInfo": im_info,
        },
        {
            "batch_size_per_im": batch_size_per_im,
            "fg_fraction": fg_fraction,
            "fg_thresh": fg_thresh,
            "bg_thresh_hi": bg_thresh_hi,
            "bg_thresh_lo": bg_thresh_lo,
            "bbox_reg_weights": list(bbox_reg_weights),
            "class_nums": class_nums,
            "use_random": use_random,
            "is_cls_agnostic": is_cls_agnostic,
            "is_cascade_rcnn": is_cascade_rcnn,
        },
        {
            "Rois": rpn_rois.dtype,
            "LabelsInt32": gt_classes.dtype,
            **dict.fromkeys(float_slots, rpn_rois.dtype),
        },
    )


def generate_mask_labels(
    im_info: Variable,
    gt_classes: Variable,
    is_crowd: Variable,
    gt_segms: Variable,
    rois: Variable,
    labels_int32: Variable,
    num_classes: int,
    resolution: int,
) -> tuple[Variable, ...]:
    """Target masks: the pixels of sampled regions that belong to the region's object.

    Args:
        im_info: height, width and scale of the images, ``(images, 3)``.
        gt_classes: classes of the objects, int32 ``(objects, 1)``, a sequence for every image.
        is_crowd: 1 for crowds, which do not count, int32 ``(objects, 1)``, likewise.
        gt_segms: corners of the objects' polygons, ``(points, 2)``, with three levels of
            sequences: images of objects, objects of polygons, polygons of points.
        rois: boxes, ``(picked, 4)``, a sequence for every image.
        labels_int32: classes of the boxes, int32 ``(picked, 1)``, likewise.
        num_classes: number of classes, with the background.
        resolution: height and width of the masks.

    Returns:
        The boxes of every image that have a class, ``(boxes, 4)``, or one background box; their
        indices in the image, int32 ``(boxes, 1)``; and masks, int32 ``(boxes, num_classes *
        resolution ** 2)``: in the columns of the object's class 1 inside and 0 outside of the
        object, -1 in all other columns. Source: Paddle op ``generate_mask_labels``.

    Raises:
        EnforceNotMet: ``im_info`` is not ``(images, 3)``, or the others do not fit it.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     info = fluid.layers.assign(np.array([[32, 32, 1]], "float32"))
        ...     kind = fluid.data("kind", [None, 1], "int32", lod_level=1)
        ...     crowd = fluid.data("crowd", [None, 1], "int32", lod_level=1)
        ...     corners = fluid.data("corners", [None, 2], lod_level=3)
        ...     boxes = fluid.data("boxes", [None, 4], lod_level=1)
        ...     _, _, masks = fluid.layers.generate_mask_labels(
        ...         info, kind, crowd, corners, boxes, kind, num_classes=2, resolution=2
        ...     )
        ...     def fed(values, dtype, lengths):
        ...         values = np.array(values, dtype)
        ...         return fluid.create_lod_tensor(values, lengths, fluid.CPUPlace())
        ...     feed = {"kind": fed([[1]], "int32", [[1]]), "crowd": fed([[0]], "int32", [[1]])}
        ...     left = [[0, 0], [5, 0], [5, 10], [0, 10]]  # the left half of the box
        ...     feed["corners"] = fed(left, "float32", [[1], [1], [4]])
        ...     feed["boxes"] = fed([[0, 0, 10, 10]], "float32", [[1]])
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[masks], return_numpy=False)
        >>> np.array(found)[0, 4:].tolist()  # the columns of class 1
        [1, 0, 1, 0]
    """
    integers = dict.fromkeys(("RoiHasMaskInt32", "MaskInt32"), gt_classes.dtype)
    return _fixed_outputs(
        "generate_mask_labels",
        {
            "ImInfo": im_info,
            "GtClasses": gt_classes,
            "IsCrowd": is_crowd,
            "GtSegms": gt_segms,
            "Rois": rois,
            "LabelsInt32": labels_int32,
        },
        {"num_classes": num_classes, "resolution": resolution},
        {"MaskRois": rois.dtype, **integers},
    )


def box_decoder_and_assign(
    prior_box: Variable,
    prior_box_var: Variable,
    target_box: Variable,
    box_score: Variable,
    box_clip: float,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Decode boxes with the shifts of every class, and with those of the most probable class.

    Args:
        prior_box: ``(boxes, 4)``.
        prior_box_var: four factors of the shifts.
        target_box: shifts for every class, ``(boxes, 4 * classes)``.
        box_score: ``(boxes, classes)``; class 0 is the background.
        box_clip: upper limit of the shifts' log scale factors.
        name: prefix of names.

    Returns:
        ``(boxes, 4 * classes)`` and ``(boxes, 4)``. Source: Paddle op ``box_decoder_and_assign``.

    Raises:
        EnforceNotMet: boxes do not have four numbers each, or the other shapes do not fit theirs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     def of(rows):
        ...         return fluid.layers.assign(np.array(rows, "float32"))
        ...     prior, factors = of([[0, 0, 9, 9]]), of([0.1, 0.1, 0.2, 0.2])
        ...     shifts, scores = of([[0, 0, 0, 0, 1, 0, 0, 0]]), of([[0.2, 0.8]])
        ...     pair = fluid.layers.box_decoder_and_assign(prior, factors, shifts, scores, 4.0)
        ...     found = fluid.Executor(fluid.CPUPlace()).run(fetch_list=list(pair))
        >>> [value.tolist() for value in found]  # class 1 moves the box by a tenth of its width
        [[[0.0, 0.0, 9.0, 9.0, 1.0, 0.0, 10.0, 9.0]], [[1.0, 0.0, 10.0, 9.0]]]
    """
    helper = LayerHelper("box_decoder_and_assign", name=name)
    inputs = {
        "PriorBox": prior_box,
        "PriorBoxVar": prior_box_var,
        "TargetBox": target_box,
        "BoxScore": box_score,
    }
    dtypes = {"DecodeBox": prior_box.dtype, "OutputAssignBox": prior_box.dtype}
    made = add_outputs(helper, inputs, dtypes, {"box_clip": box_clip})
    return made["DecodeBox"], made["OutputAssignBox"]
