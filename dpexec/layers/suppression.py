"""Which of the boxes that were predicted stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = ["locality_aware_nms", "matrix_nms", "multiclass_nms", "retinanet_detection_output"]

_TYPES = {
    "score_threshold": float,
    "post_threshold": float,
    "nms_threshold": float,
    "nms_eta": float,
    "gaussian_sigma": float,
    "nms_top_k": int,
    "keep_top_k": int,
    "background_label": int,
    "normalized": bool,
    "use_gaussian": bool,
}


def multiclass_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    name: str | None = None,
) -> Variable:
    """The boxes of each class that no better box of the class covers.

    Args:
        bboxes: ``(N, M, 4)``, or ``(rows, classes, 4)`` with sequences: the images; or polygons of
            4, 8, 12 or 16 corners, ``(N, M, 2 * corners)``.
        scores: ``(N, classes, M)``, or ``(rows, classes)`` with the same sequences.
        score_threshold: boxes with this score or less are left out.
        nms_top_k: boxes of a class that come into question; -1 for all.
        keep_top_k: boxes of an image that are kept; -1 for all.
        nms_threshold: shared by covered area above which a box covers another.
        normalized: False if the last pixel belongs to a box.
        nms_eta: below 1 the threshold is multiplied with it after each box, until it is 0.5.
        background_label: a class without boxes; -1 for none.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, or polygon; the images are its sequences. One
        row of one number, -1, if nothing is found. Source: Paddle op ``multiclass_nms``.
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    return found_boxes("multiclass_nms", bboxes, scores, attrs, name)[0]


def matrix_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    post_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    use_gaussian: bool = False,
    gaussian_sigma: float = 2.0,
    background_label: int = 0,
    normalized: bool = True,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The best boxes after scores are shrunk by how far better ones cover them.

    Args:
        bboxes: ``(N, M, 4)``.
        scores: ``(N, classes, M)``.
        score_threshold: boxes with this score or less are left out.
        post_threshold: likewise, of the scores that are shrunk.
        nms_top_k: boxes of a class that come into question; -1 for all.
        keep_top_k: boxes of an image that are kept; -1 for all.
        use_gaussian: whether scores shrink by a Gaussian, not linearly.
        gaussian_sigma: of that.
        background_label: a class without boxes; -1 for none.
        normalized: False if the last pixel belongs to a box.
        return_index: whether to return numbers of boxes, too.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, whose sequences are the images; with
        ``return_index`` also the numbers of these boxes, int32 ``(found, 1)``. Source: Paddle op
        ``matrix_nms``.
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "post_threshold": post_threshold,
        "nms_top_k": nms_top_k,
        "gaussian_sigma": gaussian_sigma,
        "use_gaussian": use_gaussian,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    found, index = found_boxes("matrix_nms", bboxes, scores, attrs, name, with_index=True)
    return (found, index) if return_index else found


def locality_aware_nms(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = -1,
    name: str | None = None,
) -> Variable:
    """The best boxes after neighbours that cover each other have become one.

    Args:
        bboxes: ``(N, M, 4)``, or polygons as for :func:`multiclass_nms`.
        scores: ``(N, 1, M)``; there is one class.
        score_threshold: boxes with this score or less are left out.
        nms_top_k: boxes that come into question; -1 for all.
        keep_top_k: boxes of an image that are kept; -1 for all.
        nms_threshold: shared by covered area above which a box covers another.
        normalized: False if the last pixel belongs to a box.
        nms_eta: as for :func:`multiclass_nms`.
        background_label: 0 if the class is what is no object; -1 if not.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``; the images are its sequences. One row of
        one number, -1, if nothing is found. Source: Paddle op ``locality_aware_nms``; Zhou and
        others, 2017 (EAST).
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "nms_eta": nms_eta,
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    return found_boxes("locality_aware_nms", bboxes, scores, attrs, name)[0]


def retinanet_detection_output(
    bboxes: Sequence[Variable],
    scores: Sequence[Variable],
    anchors: Sequence[Variable],
    im_info: Variable,
    score_threshold: float = 0.05,
    nms_top_k: int = 1000,
    keep_top_k: int = 100,
    nms_threshold: float = 0.3,
    nms_eta: float = 1.0,
) -> Variable:
    """What a RetinaNet found, on all levels of its pyramid.

    Args:
        bboxes: for each level what moves anchors, ``(N, M, 4)``, the coarsest one last.
        scores: probabilities of classes, ``(N, M, classes)``, without one of the background.
        anchors: ``(M, 4)``.
        im_info: height, width and scale of the images, ``(N, 3)``.
        score_threshold: scores up to this are left out, but on the last level only those up to 0.
        nms_top_k: scores of a level that come into question; -1 for all.
        keep_top_k: boxes of an image that are kept; -1 for all.
        nms_threshold: shared by covered area above which a box covers another.
        nms_eta: as for :func:`multiclass_nms`. The original always takes 1.

    Returns:
        Rows of label (from 1 on), score and box, ``(found, 6)``; the images are its sequences.
        Source: Paddle op ``retinanet_detection_output``.
    """
    layer = "retinanet_detection_output"
    given = {"bboxes": bboxes, "scores": scores, "anchors": anchors}
    for argument, levels in given.items():
        check_type(levels, argument, list, layer)
        for number, level in enumerate(levels):
            check_variable_and_dtype(level, f"{argument}[{number}]", SINGLE_DOUBLE, layer)
    check_variable_and_dtype(im_info, "im_info", SINGLE_DOUBLE, layer)
    inputs = {"BBoxes": bboxes, "Scores": scores, "Anchors": anchors, "ImInfo": im_info}
    attrs = {
        "score_threshold": score_threshold,
        "nms_top_k": nms_top_k,
        "nms_threshold": nms_threshold,
        "keep_top_k": keep_top_k,
        "nms_eta": nms_eta,
    }
    return add_op(layer, inputs, scores[0].dtype, attrs, stop_gradient=True)


def found_boxes(
    op_type: str,
    bboxes: Variable,
    scores: Variable,
    attrs: Mapping[str, Any],
    name: str | None,
    layer: str | None = None,
    with_index: bool = False,
) -> tuple[Variable, Variable]:
    """Add an operator that suppresses boxes.

    Args:
        op_type: its type.
        bboxes: input.
        scores: input.
        attrs: its attributes, whose types are checked.
        name: prefix of names.
        layer: what the outputs are named after, if not the operator.
        with_index: whether it has the output ``Index``.

    Returns:
        What is found, and the index (without it, what is found, again).
    """
    for variable, argument in ((bboxes, "bboxes"), (scores, "scores")):
        check_variable_and_dtype(variable, argument, SINGLE_DOUBLE, op_type)
    for argument, value in attrs.items():
        check_type(value, argument, _TYPES[argument], op_type)
    helper = LayerHelper(layer or op_type, name=name)
    inputs, dtypes = {"Scores": scores, "BBoxes": bboxes}, {"Out": bboxes.dtype}
    if with_index:
        dtypes["Index"] = VarType.INT32
    made = add_outputs(helper, inputs, dtypes, attrs, op_type=op_type, stop_gradient=True)
    return made["Out"], made.get("Index", made["Out"])
