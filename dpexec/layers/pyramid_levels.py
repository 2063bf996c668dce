"""Region proposals of a feature pyramid: distributing them to its levels, and collecting them."""

from __future__ import annotations

from collections.abc import Sequence

from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["collect_fpn_proposals", "distribute_fpn_proposals"]


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Distribute boxes to the levels of a feature pyramid by size.

    Args:
        fpn_rois: boxes, ``(rois, 4)``, a sequence for every image.
        min_level: the finest level.
        max_level: the coarsest level.
        refer_level: the level of boxes with the area of a square of side ``refer_scale``.
        refer_scale: side of the reference square, in pixels.
        name: prefix of names.

    Returns:
        The boxes of each level, and int32 ``(rois, 1)``: each box's row in the concatenation of all
        levels. Source: Paddle op ``distribute_fpn_proposals``.

    Raises:
        EnforceNotMet: ``fpn_rois`` does not hold four floats per box, or ``max_level`` is below
            ``min_level``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     rois = fluid.data("rois", [None, 4], lod_level=1)
        ...     levels, order = fluid.layers.distribute_fpn_proposals(rois, 2, 5, 4, 224)
        ...     len(levels), order.shape
        (4, (-1, 1))
    """
    helper = LayerHelper("distribute_fpn_proposals", name=name)
    levels = [
        helper.create_variable_for_type_inference(fpn_rois.dtype)
        for _ in range(min_level, max_level + 1)
    ]
    restore = helper.create_variable_for_type_inference("int32")
    helper.append_op(
        type="distribute_fpn_proposals",
        inputs={"FpnRois": fpn_rois},
        outputs={"MultiFpnRois": levels, "RestoreIndex": restore},
        attrs={
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def collect_fpn_proposals(
    multi_rois: Sequence[Variable],
    multi_scores: Sequence[Variable],
    min_level: int,
    max_level: int,
    post_nms_top_n: int,
    name: str | None = None,
) -> Variable:
    """The best boxes of all levels of a feature pyramid.

    Args:
        multi_rois: boxes of every level, ``(rois, 4)``, a sequence for every image.
        multi_scores: scores of the boxes of every level, ``(rois, 1)``, likewise.
        min_level: the finest level.
        max_level: the coarsest level.
        post_nms_top_n: number of boxes to keep over all images.
        name: prefix of names.

    Returns:
        ``(rois, 4)``, a sequence for every image. Source: Paddle op ``collect_fpn_proposals``.

    Raises:
        EnforceNotMet: the levels do not fit the numbers of ``multi_rois`` and ``multi_scores``.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     rois = [fluid.data(f"rois{n}", [None, 4], lod_level=1) for n in (2, 3)]
        ...     scores = [fluid.data(f"scores{n}", [None, 1], lod_level=1) for n in (2, 3)]
        ...     fluid.layers.collect_fpn_proposals(rois, scores, 2, 3, post_nms_top_n=100).shape[1]
        4
    """
    count = max_level - min_level + 1
    made = add_outputs(
        LayerHelper("collect_fpn_proposals", name=name),
        {
            "MultiLevelRois": list(multi_rois[:count]),
            "MultiLevelScores": list(multi_scores[:count]),
        },
        {"FpnRois": multi_rois[0].dtype},
        {"post_nms_topN": post_nms_top_n},
        stop_gradient=True,
    )
    return made["FpnRois"]
