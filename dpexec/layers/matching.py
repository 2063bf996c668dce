"""Matching boxes with objects, and targets of predictions."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.checks import SINGLE_DOUBLE, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_op, add_outputs

__all__ = ["bipartite_match", "box_clip", "box_coder", "iou_similarity", "target_assign"]


def iou_similarity(
    x: Variable, y: Variable, box_normalized: bool = True, name: str | None = None
) -> Variable:
    """Intersection over union of all pairs of boxes.

    Args:
        x: ``(N, 4)``, optionally with one sequence of boxes per image.
        y: ``(M, 4)``.
        box_normalized: False for pixel coordinates, where a box includes its last pixel.
        name: prefix of names.

    Returns:
        ``(N, M)`` with the sequences of ``x``. Source: Paddle op ``iou_similarity``.

    Raises:
        EnforceNotMet: ``x`` or ``y`` does not hold four floats per box.

    See Also:
        :func:`bipartite_match`: the best pairs by that.
        :func:`target_assign`: values of the pairs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[0.0, 0.0, 2.0, 2.0]], "float32"))
        ...     y = fluid.layers.assign(np.array([[1.0, 0.0, 3.0, 2.0]], "float32"))
        ...     out = fluid.layers.iou_similarity(x, y)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])[0].round(4)
        array([[0.3333]], dtype=float32)
    """
    attrs = {"box_normalized": box_normalized}
    return add_op("iou_similarity", {"X": x, "Y": y}, x.dtype, attrs, name=name)


def box_coder(
    prior_box: Variable,
    prior_box_var: Variable | Sequence[float] | None,
    target_box: Variable,
    code_type: str = "encode_center_size",
    box_normalized: bool = True,
    name: str | None = None,
    axis: int = 0,
) -> Variable:
    """Encode boxes as centres and sizes relative to prior boxes, or decode such codes to boxes.

    Args:
        prior_box: ``(M, 4)``; ``(N, 4)`` when decoding with ``axis`` 1.
        prior_box_var: variances in the shape of ``prior_box``, or a list of four numbers for all
            boxes.
        target_box: boxes ``(N, 4)`` to encode, or codes ``(N, M, 4)`` to decode.
        code_type: ``"encode_center_size"`` or ``"decode_center_size"``.
        box_normalized: False for pixel coordinates, where a box includes its last pixel.
        name: prefix of names.
        axis: when decoding: 0 takes prior box ``j`` for ``target_box[:, j]``, 1 takes prior box
            ``i`` for ``target_box[i]``.

    Returns:
        ``(N, M, 4)``. Source: Paddle op ``box_coder``.

    Raises:
        TypeError: ``prior_box_var`` is neither a variable nor a list.

    See Also:
        :func:`prior_box`: boxes of several shapes for each cell.
        :func:`density_prior_box`: more of them.
        :func:`anchor_generator`: boxes by size in pixels.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     prior = fluid.layers.assign(np.array([[0, 0, 2, 2]], "float32"))
        ...     truth = fluid.layers.assign(np.array([[1, 0, 3, 2]], "float32"))
        ...     offsets = fluid.layers.box_coder(prior, [0.1, 0.1, 0.2, 0.2], truth)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[offsets])[0].round(4).tolist()
        [[[5.0, 0.0, 0.0, 0.0]]]
    """
    inputs = {"PriorBox": prior_box, "TargetBox": target_box}
    attrs = {"code_type": code_type, "box_normalized": box_normalized, "axis": axis}
    if isinstance(prior_box_var, Variable):
        inputs["PriorBoxVar"] = prior_box_var
    elif isinstance(prior_box_var, list):
        attrs["variance"] = prior_box_var
    else:
        raise TypeError(
            "prior_box_var of box_coder must be a Variable or a list, "
            f"but received {type(prior_box_var).__name__}"
        )
    return add_op("box_coder", inputs, prior_box.dtype, attrs, slot="OutputBox", name=name)


def box_clip(input: Variable, im_info: Variable, name: str | None = None) -> Variable:
    """Clip boxes to their images.

    Args:
        input: ``(boxes, 4)`` or ``(boxes, classes, 4)``, one sequence per image.
        im_info: height, width and scale of every image as the network gets it, ``(N, 3)``.
        name: prefix of names.

    Returns:
        Boxes in the shape of ``input``. Source: Paddle op ``box_clip``.

    Raises:
        TypeError: ``input`` or ``im_info`` is no variable of type float32 or float64.
        EnforceNotMet: ``input`` does not hold four numbers per box, or ``im_info`` three per image.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     boxes = fluid.data("boxes", [None, 4], lod_level=1)
        ...     size = fluid.data("size", [None, 3])  # height, width and scale of each image
        ...     fluid.layers.box_clip(boxes, size).shape
        (-1, 4)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "box_clip")
    check_variable_and_dtype(im_info, "im_info", SINGLE_DOUBLE, "box_clip")
    inputs = {"Input": input, "ImInfo": im_info}
    return add_op("box_clip", inputs, input.dtype, slot="Output", name=name)


def bipartite_match(
    dist_matrix: Variable,
    match_type: str | None = None,
    dist_threshold: float | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Match columns (predictions) with rows (objects), best pairs first.

    Args:
        dist_matrix: scores of all pairs, ``(rows, M)``, optionally with one sequence per image.
        match_type: ``"bipartite"``, the default: every row gets one column; ``"per_prediction"``:
            unmatched columns also get the row with their greatest score.
        dist_threshold: least score of these additional matches, 0.5 by default.
        name: prefix of names.

    Returns:
        For every image and column the matched row, counted within the image, or -1 for none, int32
        ``(N, M)``; and its score. Source: Paddle op ``bipartite_match``.

    Raises:
        EnforceNotMet: ``dist_matrix`` is no matrix of floats, or ``match_type`` is unknown.

    See Also:
        :func:`iou_similarity`: how much boxes overlap.
        :func:`target_assign`: values of the pairs.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     near = fluid.data("near", [None, 3], lod_level=1)  # objects by boxes
        ...     found = fluid.layers.bipartite_match(near)
        ...     overlaps = np.array([[0.1, 0.9, 0.3], [0.2, 0.8, 0.0]], "float32")
        ...     feed = {"near": fluid.create_lod_tensor(overlaps, [[2]], fluid.CPUPlace())}
        ...     fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=list(found))
        [array([[ 1,  0, -1]], dtype=int32), array([[0.2, 0.9, 0. ]], dtype=float32)]
    """
    helper = LayerHelper("bipartite_match", name=name)
    dtypes = {"ColToRowMatchIndices": "int32", "ColToRowMatchDist": dist_matrix.dtype}
    attrs = {"match_type": match_type, "dist_threshold": dist_threshold}
    made = add_outputs(helper, {"DistMat": dist_matrix}, dtypes, attrs)
    return made["ColToRowMatchIndices"], made["ColToRowMatchDist"]


def target_assign(
    input: Variable,
    matched_indices: Variable,
    negative_indices: Variable | None = None,
    mismatch_value: int | None = None,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The target of every prediction, and its weight.

    Args:
        input: the objects' values, ``(rows, P, K)`` with one sequence per image.
        matched_indices: as from :func:`bipartite_match`, int32 ``(N, M)``.
        negative_indices: indices of negative predictions, int32 with sequences.
        mismatch_value: target of predictions without object, 0 by default.
        name: prefix of names.

    Returns:
        Targets ``(N, M, K)``, and weights ``(N, M, 1)``: 1 for predictions with an object or in
        ``negative_indices``, else 0. Source: Paddle op ``target_assign``.

    Raises:
        EnforceNotMet: ``input`` does not have three dimensions, or ``matched_indices`` does not fit
            it.

    See Also:
        :func:`iou_similarity`: how much boxes overlap.
        :func:`bipartite_match`: the best pairs by that.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     labels = fluid.data("labels", [None, 1, 1], "int32", lod_level=1)
        ...     match = fluid.data("match", [None, 20], "int32")  # of bipartite_match
        ...     targets, weights = fluid.layers.target_assign(labels, match, mismatch_value=0)
        ...     targets.shape, weights.shape
        ((-1, 20, 1), (-1, 20, 1))
    """
    helper = LayerHelper("target_assign", name=name)
    inputs = {"X": input, "MatchIndices": matched_indices, "NegIndices": negative_indices}
    dtypes = {"Out": input.dtype, "OutWeight": "float32"}
    made = add_outputs(helper, inputs, dtypes, {"mismatch_value": mismatch_value})
    return made["Out"], made["OutWeight"]
