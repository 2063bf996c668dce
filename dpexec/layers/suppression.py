"""Non-maximum suppression of predicted boxes."""

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
    """The boxes of each class that no better box of the same class covers.

    Args:
        bboxes: ``(N, M, 4)``, or ``(rows, classes, 4)`` with one sequence per image; or polygons of
            4, 8, 12 or 16 corners, ``(N, M, 2 * corners)``.
        scores: ``(N, classes, M)``, or ``(rows, classes)`` with the same sequences.
        score_threshold: boxes with this score or less are left out.
        nms_top_k: number of best boxes per class to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        nms_threshold: intersection over union above which a box covers another.
        normalized: False for pixel coordinates, where a box includes its last pixel.
        nms_eta: if below 1, the threshold is multiplied by it after each box kept, as long as it is
            above 0.5.
        background_label: the class that is left out; -1 for none.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, or polygon, one sequence per image. One row
        with the single number -1 if nothing is found. Source: Paddle op ``multiclass_nms``.

    Raises:
        TypeError: ``bboxes`` or ``scores`` is no variable of type float32 or float64.
        EnforceNotMet: ``bboxes`` or ``scores`` does not have three dimensions, or they do not fit
            each other.

    See Also:
        :func:`prior_box`: the boxes that a detector starts from.
        :func:`box_coder`: offsets to boxes and back.
        :func:`detection_output`: both of these in one.
        :func:`yolo_box`: boxes from the scores of YOLOv3.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     boxes = fluid.data("boxes", [None, 3, 4])
        ...     scores = fluid.data("scores", [None, 1, 3])
        ...     out = fluid.layers.multiclass_nms(
        ...         boxes, scores, 0.1, nms_top_k=10, keep_top_k=10, background_label=-1
        ...     )
        ...     near = np.array([[[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 7, 7]]], "float32")
        ...     feed = {"boxes": near, "scores": np.array([[[0.9, 0.8, 0.7]]], "float32")}
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).round(2)  # label, score, box
        array([[0. , 0.9, 0. , 0. , 2. , 2. ],
               [0. , 0.7, 5. , 5. , 7. , 7. ]], dtype=float32)
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
    """Matrix NMS: the best boxes after scores decay by their overlap with better boxes.

    Args:
        bboxes: ``(N, M, 4)``.
        scores: ``(N, classes, M)``.
        score_threshold: boxes with this score or less are left out.
        post_threshold: boxes with this decayed score or less are left out.
        nms_top_k: number of best boxes per class to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        use_gaussian: whether scores decay by a Gaussian instead of linearly.
        gaussian_sigma: factor in the exponent: scores decay by ``exp(-gaussian_sigma * iou**2)``,
            where ``iou`` is the overlap with a better box.
        background_label: the class that is left out; -1 for none.
        normalized: False for pixel coordinates, where a box includes its last pixel.
        return_index: whether to return the boxes' indices, too.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, one sequence per image; with ``return_index``
        also the boxes' indices, int32 ``(found, 1)``. Source: Paddle op ``matrix_nms``.

    Raises:
        TypeError: ``bboxes`` or ``scores`` is no variable of type float32 or float64.
        EnforceNotMet: ``bboxes`` or ``scores`` does not have three dimensions, or they do not fit
            each other.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.8], [2, 2, 3, 3]]], "float32")
        >>> scores = np.array([[[0.9, 0.8, 0.7]]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     given = fluid.data("boxes", [1, 3, 4]), fluid.data("scores", [1, 1, 3])
        ...     out = fluid.layers.matrix_nms(*given, 0.1, 0.0, -1, -1, background_label=-1)
        ...     exe, feed = fluid.Executor(fluid.CPUPlace()), {"boxes": boxes, "scores": scores}
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found)[:, 1].round(3).tolist()  # 0.8 became 0.8 * (1 - the overlap)
        [0.8999999761581421, 0.699999988079071, 0.1599999964237213]
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
    """Merge neighbouring boxes that cover each other, then keep the best boxes.

    A merged box is the mean of both, weighted by score; its score is the sum of theirs.

    Args:
        bboxes: ``(N, M, 4)``, or polygons as for :func:`multiclass_nms`.
        scores: ``(N, 1, M)``; there is one class.
        score_threshold: boxes with this score or less are left out.
        nms_top_k: number of best boxes to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        nms_threshold: intersection over union above which a box covers another.
        normalized: False for pixel coordinates, where a box includes its last pixel.
        nms_eta: as for :func:`multiclass_nms`.
        background_label: -1 keeps the boxes of the only class; 0 treats it as background, so that
            nothing is found.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, one sequence per image. One row with the
        single number -1 if nothing is found. Source: Paddle op ``locality_aware_nms``; Zhou and
        others, 2017 (EAST).

    Raises:
        TypeError: ``bboxes`` or ``scores`` is no variable of type float32 or float64.
        EnforceNotMet: ``bboxes`` or ``scores`` does not have three dimensions, or they do not fit
            each other.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> boxes = np.array([[[0, 0, 10, 10], [1, 0, 11, 10], [30, 30, 40, 40]]], "float32")
        >>> scores = np.array([[[0.5, 0.5, 0.9]]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     given = fluid.data("boxes", [1, 3, 4]), fluid.data("scores", [1, 1, 3])
        ...     out = fluid.layers.locality_aware_nms(*given, 0.1, -1, -1, 0.3, normalized=False)
        ...     exe, feed = fluid.Executor(fluid.CPUPlace()), {"boxes": boxes, "scores": scores}
        ...     (found,) = exe.run(feed=feed, fetch_list=[out], return_numpy=False)
        >>> np.array(found).round(3).tolist()  # the first two became one: its score is the sum
        [[0.0, 1.0, 0.5, 0.0, 10.5, 10.0], [0.0, 0.8999999761581421, 30.0, 30.0, 40.0, 40.0]]
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
    """The objects detected by a RetinaNet on all levels of its pyramid.

    Args:
        bboxes: shifts of the anchors for each level, ``(N, M, 4)``, the coarsest level last.
        scores: probabilities of classes for each level, ``(N, M, classes)``, without background.
        anchors: ``(M, 4)``.
        im_info: height, width and scale of the images, ``(N, 3)``.
        score_threshold: scores up to this are left out; on the last level only scores up to 0.
        nms_top_k: number of best scores per level to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        nms_threshold: intersection over union above which a box covers another.
        nms_eta: as for :func:`multiclass_nms`. The original always uses 1.

    Returns:
        Rows of label (from 1 on), score and box, ``(found, 6)``, one sequence per image. Source:
        Paddle op ``retinanet_detection_output``.

    Raises:
        TypeError: ``im_info`` is no variable of type float32 or float64.
        EnforceNotMet: the lists have different lengths, or ``im_info`` is not ``(images, 3)``.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     def of(values):
        ...         return fluid.layers.assign(np.array(values, "float32"))
        ...     anchors = of([[0, 0, 9, 9], [1, 0, 10, 9], [20, 20, 29, 29]])
        ...     scores = of([[[0.9, 0.0], [0.8, 0.0], [0.0, 0.7]]])  # 3 anchors, 2 classes
        ...     shifts, info = of(np.zeros((1, 3, 4))), of([[32, 32, 1]])
        ...     rows = fluid.layers.retinanet_detection_output(
        ...         [shifts], [scores], [anchors], info
        ...     )
        ...     exe = fluid.Executor(fluid.CPUPlace())
        ...     (found,) = exe.run(fetch_list=[rows], return_numpy=False)
        >>> np.array(found)[:, [0, 2, 3, 4, 5]].tolist()  # the second is covered
        [[1.0, 0.0, 0.0, 9.0, 9.0], [2.0, 20.0, 20.0, 29.0, 29.0]]
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
        layer: prefix of the outputs' names, if not the operator's type.
        with_index: whether it has the output ``Index``.

    Returns:
        The result, and the index; without an index, the result twice.
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
