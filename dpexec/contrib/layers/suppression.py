"""Non-maximum suppression that also returns the boxes' indices."""

from __future__ import annotations

from dpexec.engine.ir.variable import Variable
from dpexec.layers.suppression import found_boxes

__all__ = ["multiclass_nms2"]


def multiclass_nms2(
    bboxes: Variable,
    scores: Variable,
    score_threshold: float,
    nms_top_k: int,
    keep_top_k: int,
    nms_threshold: float = 0.3,
    normalized: bool = True,
    nms_eta: float = 1.0,
    background_label: int = 0,
    return_index: bool = False,
    name: str | None = None,
) -> Variable | tuple[Variable, Variable]:
    """The boxes of each class that no better box of the same class covers.

    Args:
        bboxes: as for ``layers.multiclass_nms``.
        scores: as for ``layers.multiclass_nms``.
        score_threshold: boxes with this score or less are left out.
        nms_top_k: number of best boxes per class to consider; -1 for all.
        keep_top_k: number of boxes to keep per image; -1 for all.
        nms_threshold: intersection over union above which a box covers another.
        normalized: False for pixel coordinates, where a box includes its last pixel.
        nms_eta: if below 1, the threshold is multiplied by it after each box kept, as long as it is
            above 0.5.
        background_label: the class that is left out; -1 for none.
        return_index: whether to return the boxes' indices, too.
        name: prefix of names.

    Returns:
        Rows of label, score and box, ``(found, 6)``, whose sequences are the images; no row if
        nothing is found. With ``return_index`` also the numbers of these boxes, counted over all
        images, int32 ``(found, 1)``. Source: Paddle op ``multiclass_nms2``.

    Raises:
        TypeError: ``bboxes`` or ``scores`` is no variable of type float32 or float64.
        EnforceNotMet: ``bboxes`` or ``scores`` does not have three dimensions, or they do not fit
            each other.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], "float32")
        >>> scores = np.array([[[0.9, 0.8, 0.7]]], "float32")
        >>> with fluid.program_guard(fluid.Program()):
        ...     given = fluid.data("boxes", [1, 3, 4]), fluid.data("scores", [1, 1, 3])
        ...     out, index = fluid.contrib.layers.multiclass_nms2(
        ...         *given, 0.1, -1, -1, background_label=-1, return_index=True
        ...     )
        ...     exe, feed = fluid.Executor(fluid.CPUPlace()), {"boxes": boxes, "scores": scores}
        ...     (found,) = exe.run(feed=feed, fetch_list=[index], return_numpy=False)
        >>> np.array(found).tolist()  # box 1 is covered by box 0
        [[0], [2]]
    """
    attrs = {
        "background_label": background_label,
        "score_threshold": float(score_threshold),
        "nms_top_k": nms_top_k,
        "nms_threshold": float(nms_threshold),
        "nms_eta": float(nms_eta),
        "keep_top_k": keep_top_k,
        "normalized": normalized,
    }
    op_type = "multiclass_nms2"
    found, index = found_boxes(op_type, bboxes, scores, attrs, name, with_index=True)
    return (found, index) if return_index else found
