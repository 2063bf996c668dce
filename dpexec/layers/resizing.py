"""Resizing and resampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.checks import check_choice, check_type
from dpexec.engine.ir.callsite import warn
from dpexec.engine.ir.variable import Variable
from dpexec.layer_helper import LayerHelper
from dpexec.layers.build import add_outputs, number_or_tensor, numbers_or_tensors

__all__ = [
    "image_resize",
    "image_resize_short",
    "interpolate",
    "resize_bilinear",
    "resize_nearest",
    "resize_trilinear",
]

Size = Sequence[int | Variable] | Variable
_LAYOUTS = {4: ("NCHW", "NHWC"), 5: ("NCDHW", "NDHWC")}
_RANKS = {"BILINEAR": 4, "NEAREST": 4, "BICUBIC": 4, "TRILINEAR": 5}


def interpolate(
    input: Variable,
    out_shape: Size | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images or volumes.

    Args:
        input: ``(N, C, H, W)``, or ``(N, C, D, H, W)``, or with channels last as ``data_format``
            says.
        out_shape: height and width, or depth, height and width: numbers, one-element variables, or
            a variable with all.
        scale: factor of the size, rounded down to whole elements; used if ``out_shape`` is not
            given.
        name: prefix of names.
        resample: ``"BILINEAR"``, ``"NEAREST"``, ``"BICUBIC"``, or ``"TRILINEAR"`` for volumes.
        actual_shape: deprecated: a variable that replaces ``out_shape``.
        align_corners: the first and the last elements of both coincide: element ``i`` of the result
            is read at ``i * (old - 1) / (new - 1)``. ``"NEAREST"`` rounds that, halves upwards.
        align_mode: for linear methods without ``align_corners``, with ``r = old / new``: 1 reads
            element ``i`` at ``r * i``, 0 at ``r * (i + 0.5) - 0.5`` (elements are areas).
            ``"NEAREST"`` always takes ``floor(r * i)``, ``"BICUBIC"`` always treats elements as
            areas.
        data_format: ``"NCHW"`` or ``"NHWC"``, ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        The resized tensor, in the same format. Source: Paddle ops ``bilinear_interp``,
        ``nearest_interp``, ``bicubic_interp``, ``trilinear_interp``.

    Raises:
        ValueError: arguments do not fit.
        TypeError: a size has the wrong type.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8])
        ...     fluid.layers.interpolate(x, out_shape=[16, 16], resample="BILINEAR").shape
        (-1, 3, 16, 16)
    """
    check_choice(resample, "resample", tuple(_RANKS), "interpolate")
    return _resize(
        input, out_shape, scale, name, resample, actual_shape, align_corners, align_mode,
        data_format,
    )  # fmt: skip


def image_resize(
    input: Variable,
    out_shape: Size | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    resample: str = "BILINEAR",
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """As :func:`interpolate`, without ``"BICUBIC"``.

    Args:
        input: as for :func:`interpolate`.
        out_shape: as for :func:`interpolate`.
        scale: as for :func:`interpolate`.
        name: as for :func:`interpolate`.
        resample: ``"BILINEAR"``, ``"NEAREST"``, or ``"TRILINEAR"`` for volumes.
        actual_shape: as for :func:`interpolate`.
        align_corners: as for :func:`interpolate`.
        align_mode: as for :func:`interpolate`.
        data_format: as for :func:`interpolate`.

    Returns:
        The resized tensor, in the same format.

    Raises:
        ValueError: arguments do not fit.
        TypeError: a size has the wrong type.

    See Also:
        :func:`resize_bilinear`: between pixels.
        :func:`resize_nearest`: the nearest pixel.
        :func:`image_resize_short`: by the shorter side.
        :func:`pixel_shuffle`: from channels.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 32, 32])
        ...     fluid.layers.image_resize(x, out_shape=[64, 64]).shape
        (-1, 3, 64, 64)
    """
    check_choice(resample, "resample", ("BILINEAR", "TRILINEAR", "NEAREST"), "image_resize")
    return _resize(
        input, out_shape, scale, name, resample, actual_shape, align_corners, align_mode,
        data_format,
    )  # fmt: skip


def _resize(
    input: Variable,
    out_shape: Size | None,
    scale: float | Variable | None,
    name: str | None,
    resample: str,
    actual_shape: Variable | None,
    align_corners: bool,
    align_mode: int,
    data_format: str,
) -> Variable:
    rank, method = _RANKS[resample], resample.lower()
    layer = method + "_interp"
    if len(input.shape) != rank:
        raise ValueError(
            f"resample {resample} takes {rank} dimensions, but {input.name} has {input.shape}"
        )
    check_type(align_corners, "align_corners", bool, layer)
    check_choice(align_mode, "align_mode", (0, 1), layer)
    check_choice(data_format, "data_format", _LAYOUTS[rank], layer)
    check_type(actual_shape, "actual_shape", (Variable, type(None)), layer)
    helper = LayerHelper(layer, name=name)
    inputs: dict[str, Any] = {"X": input}
    attrs: dict[str, Any] = {
        "out_d": -1,
        "out_h": -1,
        "out_w": -1,
        "interp_method": method,
        "align_corners": align_corners,
        "align_mode": align_mode,
        "data_layout": "NHWC" if data_format[-1] == "C" else "NCHW",
    }
    if out_shape is not None:
        attrs.update(_size_attrs(helper, out_shape, rank - 2, inputs))
    elif scale is None:
        raise ValueError(f"{layer} needs out_shape or scale")
    else:
        check_type(scale, "scale", (int, float, Variable), layer)
        if not isinstance(scale, Variable):
            if scale <= 0:
                raise ValueError(f"scale must be positive, but is {scale}")
            scale = float(scale)
        number_or_tensor(scale, "Scale", "scale", inputs, attrs)
    if actual_shape is not None:
        warn("actual_shape is deprecated: give out_shape a variable")
        actual_shape.stop_gradient = True
        inputs["OutSize"] = actual_shape
    return add_outputs(helper, inputs, {"Out": input.dtype}, attrs)["Out"]


def _size_attrs(
    helper: LayerHelper, out_shape: Size, axes: int, inputs: dict[str, Any]
) -> dict[str, int]:
    """The attributes for a size, or inputs for its variable parts."""
    layer = helper.layer_type
    check_type(out_shape, "out_shape", (list, tuple, Variable), layer)
    if not isinstance(out_shape, Variable):
        if len(out_shape) != axes:
            raise ValueError(f"out_shape of {layer} must be {axes} numbers, but is {out_shape}")
        numbers = [n for n in out_shape if not isinstance(n, Variable)]
        if any(n <= 0 for n in numbers):
            raise AssertionError(f"out_shape must be positive, but is {out_shape}")
        out_shape = [n if isinstance(n, Variable) else int(n) for n in out_shape]  # as Paddle
    found: dict[str, Any] = {}
    numbers_or_tensors(helper, out_shape, ("OutSize", "SizeTensor"), "size", inputs, found)
    names = ("out_d", "out_h", "out_w")[3 - axes :]
    return dict(zip(names, found.get("size", ()), strict=False))


def resize_bilinear(
    input: Variable,
    out_shape: Size | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images: ``interpolate`` with ``resample="BILINEAR"``.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        out_shape: as for :func:`interpolate`.
        scale: as for :func:`interpolate`.
        name: prefix of names.
        actual_shape: as for :func:`interpolate`.
        align_corners: as for :func:`interpolate`.
        align_mode: as for :func:`interpolate`.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        The resized tensor, in the same format. Source: Paddle op ``bilinear_interp``.

    Raises:
        ValueError: ``input`` does not have four dimensions, or neither ``out_shape`` nor ``scale``
            is given.

    See Also:
        :func:`image_resize`: any method.
        :func:`resize_nearest`: the nearest pixel.
        :func:`image_resize_short`: by the shorter side.
        :func:`pixel_shuffle`: from channels.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0, 2.0]]]], "float32"))
        ...     out = fluid.layers.resize_bilinear(x, out_shape=[1, 3])
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[1. , 1.5, 2. ]]]], dtype=float32)]
    """
    return image_resize(
        input, out_shape, scale, name, "BILINEAR", actual_shape, align_corners, align_mode,
        data_format,
    )  # fmt: skip


def resize_trilinear(
    input: Variable,
    out_shape: Size | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    align_mode: int = 1,
    data_format: str = "NCDHW",
) -> Variable:
    """Resize volumes: ``interpolate`` with ``resample="TRILINEAR"``.

    Args:
        input: ``(N, C, D, H, W)``, or ``(N, D, H, W, C)`` as ``data_format`` says.
        out_shape: as for :func:`interpolate`.
        scale: as for :func:`interpolate`.
        name: prefix of names.
        actual_shape: as for :func:`interpolate`.
        align_corners: as for :func:`interpolate`.
        align_mode: as for :func:`interpolate`.
        data_format: ``"NCDHW"`` or ``"NDHWC"``.

    Returns:
        The resized tensor, in the same format. Source: Paddle op ``trilinear_interp``.

    Raises:
        ValueError: ``input`` does not have five dimensions, or neither ``out_shape`` nor ``scale``
            is given.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     x = fluid.data("x", [None, 3, 8, 8, 8])
        ...     fluid.layers.resize_trilinear(x, out_shape=[4, 4, 4]).shape
        (-1, 3, 4, 4, 4)
    """
    return image_resize(
        input, out_shape, scale, name, "TRILINEAR", actual_shape, align_corners, align_mode,
        data_format,
    )  # fmt: skip


def resize_nearest(
    input: Variable,
    out_shape: Size | None = None,
    scale: float | Variable | None = None,
    name: str | None = None,
    actual_shape: Variable | None = None,
    align_corners: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Resize images: ``interpolate`` with ``resample="NEAREST"``.

    Args:
        input: ``(N, C, H, W)``, or ``(N, H, W, C)`` as ``data_format`` says.
        out_shape: as for :func:`interpolate`.
        scale: as for :func:`interpolate`.
        name: prefix of names.
        actual_shape: as for :func:`interpolate`.
        align_corners: as for :func:`interpolate`.
        data_format: ``"NCHW"`` or ``"NHWC"``.

    Returns:
        The resized tensor, in the same format. Source: Paddle op ``nearest_interp``.

    Raises:
        ValueError: ``input`` does not have four dimensions, or neither ``out_shape`` nor ``scale``
            is given.

    See Also:
        :func:`image_resize`: any method.
        :func:`resize_bilinear`: between pixels.
        :func:`image_resize_short`: by the shorter side.
        :func:`pixel_shuffle`: from channels.

    Example:
        >>> import dpexec as fluid, numpy as np
        >>> with fluid.program_guard(fluid.Program()):
        ...     x = fluid.layers.assign(np.array([[[[1.0, 2.0]]]], "float32"))
        ...     out = fluid.layers.resize_nearest(x, out_shape=[1, 4], align_corners=False)
        ...     fluid.Executor(fluid.CPUPlace()).run(fetch_list=[out])
        [array([[[[1., 1., 2., 2.]]]], dtype=float32)]
    """
    return image_resize(
        input, out_shape, scale, name, "NEAREST", actual_shape, align_corners, 1, data_format
    )


def image_resize_short(input: Variable, out_short_len: int, resample: str = "BILINEAR") -> Variable:
    """Resize images to a given length of the shorter side, keeping the aspect ratio.

    Args:
        input: ``(N, C, H, W)`` of known height and width.
        out_short_len: new length of the shorter side.
        resample: as for :func:`image_resize`.

    Returns:
        ``(N, C, H', W')``.

    Raises:
        ValueError: the input does not have 4 dimensions.

    See Also:
        :func:`image_resize`: any method.
        :func:`resize_bilinear`: between pixels.
        :func:`resize_nearest`: the nearest pixel.
        :func:`pixel_shuffle`: from channels.

    Example:
        >>> import dpexec as fluid
        >>> with fluid.program_guard(fluid.Program(), fluid.Program()):
        ...     image = fluid.data("image", [None, 3, 64, 128])
        ...     fluid.layers.image_resize_short(image, out_short_len=32).shape
        (-1, 3, 32, 64)
    """
    if len(input.shape) != 4:
        raise ValueError(
            f"image_resize_short takes (N, C, H, W), but {input.name} has {input.shape}"
        )
    size = list(input.shape[2:])
    short = size.index(min(size))
    factor = out_short_len / size[short]
    size[1 - short] = int(size[1 - short] * factor + 0.5)
    size[short] = out_short_len
    return image_resize(input, size, resample=resample)
