"""Prior boxes and anchors: boxes at every position of a feature map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpexec.checks import SINGLE_DOUBLE, check_type, check_variable_and_dtype
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs

__all__ = ["anchor_generator", "density_prior_box", "prior_box"]


def prior_box(
    input: Variable,
    image: Variable,
    min_sizes: float | Sequence[float],
    max_sizes: Sequence[float] | None = None,
    aspect_ratios: float | Sequence[float] = [1.0],
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    flip: bool = False,
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],
    offset: float = 0.5,
    name: str | None = None,
    min_max_aspect_ratios_order: bool = False,
) -> tuple[Variable, Variable]:
    """The prior boxes of SSD, in coordinates relative to the image's size.

    Args:
        input: features, ``(N, C, H, W)``.
        image: ``(N, C, H', W')``; only its size counts.
        min_sizes: box sizes in pixels; each gives one box per ratio.
        max_sizes: one size for each of ``min_sizes``; adds a square box of their geometric mean.
        aspect_ratios: ratios of width to height; 1 is always included.
        variance: variances of the four coordinates of a box.
        flip: whether to use the inverse of each ratio, too.
        clip: whether to clip boxes to the image.
        steps: pixels between positions, across and down; 0 derives them from the sizes.
        offset: position of a box's centre in its cell, as a fraction of the cell.
        name: prefix of names.
        min_max_aspect_ratios_order: whether square boxes come first, as in Caffe.

    Returns:
        Boxes and their variances, ``(H, W, boxes, 4)``. Source: Paddle op ``prior_box``.

    Raises:
        ValueError: ``steps`` are not two numbers.

    See Also:
        :func:`density_prior_box`: more of them.
        :func:`anchor_generator`: boxes by size in pixels.
        :func:`box_coder`: offsets to boxes and back.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8, 4, 4])
        ...     image = fluid.data("image", [None, 3, 32, 32])
        ...     fluid.layers.prior_box(x, image, min_sizes=[10.0])[0].shape
        (4, 4, 1, 4)
    """
    check_variable_and_dtype(input, "input", ("uint8", "int8", "float32", "float64"), "prior_box")
    attrs = {
        "min_sizes": _floats(min_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": list(variance),
        "flip": flip,
        "clip": clip,
        **_steps(steps),
        "offset": offset,
        "min_max_aspect_ratios_order": min_max_aspect_ratios_order,
    }
    if max_sizes is not None and len(max_sizes) and max_sizes[0] > 0:
        attrs["max_sizes"] = _floats(max_sizes)
    return _boxes("prior_box", {"Input": input, "Image": image}, attrs, name)


def density_prior_box(
    input: Variable,
    image: Variable,
    densities: Sequence[int] | None = None,
    fixed_sizes: Sequence[float] | None = None,
    fixed_ratios: Sequence[float] | None = None,
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    clip: bool = False,
    steps: Sequence[float] = [0.0, 0.0],
    offset: float = 0.5,
    flatten_to_2d: bool = False,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """Grids of boxes around every position, in coordinates relative to the image's size.

    Args:
        input: features, ``(N, C, H, W)``.
        image: ``(N, C, H', W')``; only its size counts.
        densities: number of boxes along each side of the grid, for each size.
        fixed_sizes: box sizes in pixels.
        fixed_ratios: ratios of width to height.
        variance: variances of the four coordinates of a box.
        clip: ignored; boxes are always clipped to the image.
        steps: pixels between positions, across and down; 0 derives them from the sizes.
        offset: position of a box's centre in its cell, as a fraction of the cell.
        flatten_to_2d: whether to return one box per row.
        name: prefix of names.

    Returns:
        Boxes and their variances, ``(H, W, boxes, 4)`` or ``(H * W * boxes, 4)``. Source: Paddle
        op ``density_prior_box``.

    Raises:
        TypeError: an argument is no list.
        ValueError: the numbers of densities and sizes differ, or ``steps`` are not two numbers.

    See Also:
        :func:`prior_box`: boxes of several shapes for each cell.
        :func:`anchor_generator`: boxes by size in pixels.
        :func:`box_coder`: offsets to boxes and back.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program()):
        ...     cells = fluid.data("cells", [None, 8, 6, 6])
        ...     image = fluid.data("image", [None, 3, 48, 48])
        ...     boxes, variances = fluid.layers.density_prior_box(
        ...         cells, image, densities=[2], fixed_sizes=[16.0], fixed_ratios=[1.0]
        ...     )
        ...     boxes.shape
        (6, 6, 4, 4)
    """
    check_variable_and_dtype(input, "input", SINGLE_DOUBLE, "density_prior_box")
    for value, argument in (
        (densities, "densities"), (fixed_sizes, "fixed_sizes"), (fixed_ratios, "fixed_ratios"),
    ):  # fmt: skip
        check_type(value, argument, (list, tuple), "density_prior_box")
    assert densities is not None and fixed_sizes is not None and fixed_ratios is not None
    if len(densities) != len(fixed_sizes):
        raise ValueError(f"there are {len(densities)} densities for {len(fixed_sizes)} fixed_sizes")
    attrs = {
        "variances": list(variance),
        "clip": clip,
        **_steps(steps),
        "offset": offset,
        "densities": [int(density) for density in densities],
        "fixed_sizes": _floats(fixed_sizes),
        "fixed_ratios": _floats(fixed_ratios),
        "flatten_to_2d": flatten_to_2d,
    }
    return _boxes("density_prior_box", {"Input": input, "Image": image}, attrs, name)


def anchor_generator(
    input: Variable,
    anchor_sizes: float | Sequence[float] | None = None,
    aspect_ratios: float | Sequence[float] | None = None,
    variance: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    stride: Sequence[float] | None = None,
    offset: float = 0.5,
    name: str | None = None,
) -> tuple[Variable, Variable]:
    """The anchors of Faster R-CNN, in pixels.

    Args:
        input: features, ``(N, C, H, W)``.
        anchor_sizes: box sizes in pixels.
        aspect_ratios: ratios of height to width.
        variance: variances of the four coordinates of a box.
        stride: pixels between positions, across and down.
        offset: position of a box's centre in its cell, as a fraction of the cell.
        name: prefix of names.

    Returns:
        Boxes and their variances, ``(H, W, boxes, 4)``. Source: Paddle op ``anchor_generator``.

    Raises:
        ValueError: ``stride`` does not have two numbers.

    See Also:
        :func:`prior_box`: boxes of several shapes for each cell.
        :func:`density_prior_box`: more of them.
        :func:`box_coder`: offsets to boxes and back.
        :func:`multiclass_nms`: drops boxes that overlap.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 8, 4, 4])
        ...     anchors, variances = fluid.layers.anchor_generator(
        ...         x, anchor_sizes=[64, 128], aspect_ratios=[1.0], stride=[16.0, 16.0]
        ...     )
        ...     anchors.shape
        (4, 4, 2, 4)
    """
    if not isinstance(stride, (list, tuple)) or len(stride) != 2:
        raise ValueError(f"stride must be a list of two numbers, but is {stride!r}")
    attrs = {
        "anchor_sizes": _floats(anchor_sizes),
        "aspect_ratios": _floats(aspect_ratios),
        "variances": list(variance),
        "stride": _floats(stride),
        "offset": offset,
    }
    return _boxes("anchor_generator", {"Input": input}, attrs, name, slot="Anchors")


def _floats(values: Any) -> list[float]:
    """One number or several, as a list."""
    return [float(value) for value in (values if isinstance(values, (list, tuple)) else [values])]


def _steps(steps: Any) -> dict[str, float]:
    if not isinstance(steps, (list, tuple)) or len(steps) != 2:
        raise ValueError(f"steps must be a list of two numbers, but are {steps!r}")
    return {"step_w": float(steps[0]), "step_h": float(steps[1])}


def _boxes(
    op_type: str,
    inputs: Mapping[str, Variable],
    attrs: Mapping[str, Any],
    name: str | None,
    slot: str = "Boxes",
) -> tuple[Variable, Variable]:
    helper = LayerHelper(op_type, name=name)
    dtypes = dict.fromkeys((slot, "Variances"), inputs["Input"].dtype)
    made = add_outputs(helper, inputs, dtypes, attrs, stop_gradient=True)
    return made[slot], made["Variances"]
