"""``conv2d`` and ``depthwise_conv2d``: convolution of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.ir.opdef import OpDef, Sample, SampleRng, Spec, dims_match, op, require
from dpexec.ops._convolution import Window
from dpexec.ops._windows import image_axes, image_shape

_TUNING: dict[str, Any] = {
    "use_cudnn": False,
    "use_mkldnn": False,
    "use_quantizer": False,
    "exhaustive_search": False,
    "force_fp32_output": False,
    "workspace_size_MB": 512,
    "is_test": False,
    "fuse_relu": False,
    "fuse_relu_before_depthwise_conv": False,
    "fuse_activation": "",
    "fuse_alpha": 0.0,
    "fuse_beta": 0.0,
    "fuse_brelu": False,
    "fuse_brelu_threshold": 6.0,
    "fuse_residual_connection": False,
    "Scale_in": 1.0,
    "Scale_in_eltwise": 1.0,
    "Scale_out": 1.0,
    "Scale_weights": [1.0],
}


def _infer(
    image: Spec,
    weight: Spec,
    bias: Spec | None,
    residual: Spec | None,
    *,
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
    fuse_relu: bool = False,
    fuse_activation: str = "",
) -> Spec:
    require(bias is None, "Bias is not supported: add it with elementwise_add")
    require(residual is None, "ResidualData is not supported: add it with elementwise_add")
    require(not (fuse_relu or fuse_activation), "fused activations are not supported")
    require(image.rank == 4, f"Input {image} must have 4 dimensions")
    require(weight.rank == 4, f"Filter {weight} must have 4 dimensions")
    channel_axis, _ = image_axes(data_format)
    channels, filters = image.shape[channel_axis], weight.shape[0]
    require(
        groups > 0 and dims_match(channels, weight.shape[1] * groups) and filters % groups == 0,
        f"Filter {weight} in {groups} groups does not fit Input {image}: it must be "
        f"[filters, channels / groups, height, width], filters divisible by groups",
    )
    window = Window.of(
        image.shape, weight.shape[2:], strides=strides, paddings=paddings, dilations=dilations,
        groups=groups, padding_algorithm=padding_algorithm, data_format=data_format,
    )  # fmt: skip
    return image.replace(
        shape=image_shape(image.shape[0], filters, window.output, data_format), lod_level=0
    )


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"Input": r.normal((2, 3, 5, 4)), "Filter": r.normal((4, 3, 3, 2))}),
        Sample(
            {"Input": r.normal((2, 4, 7, 6)), "Filter": r.normal((6, 2, 3, 3))},
            {"strides": [2, 1], "paddings": [1, 0, 2, 1], "dilations": [1, 2], "groups": 2},
        ),
        Sample(
            {"Input": r.normal((2, 5, 6, 3)), "Filter": r.normal((2, 3, 3, 2))},
            {"strides": [2, 2], "padding_algorithm": "SAME", "data_format": "NHWC"},
        ),
    ]


def _depthwise_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample(
            {"Input": r.normal((2, 3, 5, 4)), "Filter": r.normal((6, 1, 3, 3))},
            {"groups": 3, "paddings": [1, 1]},
        ),
    ]


def _convolve(xp: Any, image: Any, weight: Any, window: Window) -> Any:
    """Matrix products of the filters with the windows of some images at a time."""
    output, batch = window.output, image.shape[0]
    groups, filters = window.groups, weight.shape[0]
    matrix = weight.reshape(groups, filters // groups, -1)
    shape = image_shape(batch, filters, output, window.layout)
    out = xp.empty(shape, dtype=image.dtype)
    for part in window.chunks(batch, groups * matrix.shape[2], output):
        columns = window.unfold(xp, window.pad(xp, image[part]), output)
        made = (matrix @ columns).reshape(filters, *output, part.stop - part.start)
        out[part] = window.images(made)
    return out


def _convolve_grad(
    xp: Any, image: Any, weight: Any, d_out: Any, window: Window, needs: Sequence[bool]
) -> tuple[Any, Any, None]:
    output, batch = window.output, image.shape[0]
    groups, filters = window.groups, weight.shape[0]
    matrix = weight.reshape(groups, filters // groups, -1)
    d_image = xp.empty(image.shape, dtype=image.dtype) if needs[0] else None
    d_matrix = xp.zeros(matrix.shape, dtype=weight.dtype) if needs[1] else None
    for part in window.chunks(batch, groups * matrix.shape[2], output):
        d_made = window.grouped(xp, d_out[part])
        if d_matrix is not None:
            columns = window.unfold(xp, window.pad(xp, image[part]), output)
            d_matrix += d_made @ columns.transpose(0, 2, 1)
        if d_image is not None:
            d_columns = matrix.transpose(0, 2, 1) @ d_made
            d_padded = window.fold(xp, d_columns, output, part.stop - part.start)
            d_image[part] = window.unpad(d_padded)
    return d_image, None if d_matrix is None else d_matrix.reshape(weight.shape), None


def _declare(name: str, samples: Any, doc: str) -> OpDef:
    def kernel(
        xp: Any,
        image: Any,
        weight: Any,
        bias: Any = None,
        residual: Any = None,
        *,
        strides: Sequence[int] = (1, 1),
        paddings: Sequence[int] = (0, 0),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        padding_algorithm: str = "EXPLICIT",
        data_format: str = "NCHW",
    ) -> Any:
        window = Window.of(
            image.shape, weight.shape[2:], strides=strides, paddings=paddings,
            dilations=dilations, groups=groups, padding_algorithm=padding_algorithm,
            data_format=data_format,
        )  # fmt: skip
        return _convolve(xp, image, weight, window)

    kernel.__doc__ = doc
    definition = op(
        name,
        inputs="Input Filter Bias? ResidualData?",
        outputs="Output",
        infer=_infer,
        attrs={
            **_TUNING,
            "strides": [1, 1],
            "paddings": [0, 0],
            "dilations": [1, 1],
        },
        samples=samples,
    )(kernel)

    @definition.grad(
        "Input", "Filter", "Bias?", "Output@GRAD", outputs="Input@GRAD Filter@GRAD Bias@GRAD"
    )
    def kernel_grad(
        xp: Any,
        image: Any,
        weight: Any,
        bias: Any,
        d_out: Any,
        *,
        needs: tuple[bool, ...] = (True, True, False),
        strides: Sequence[int] = (1, 1),
        paddings: Sequence[int] = (0, 0),
        dilations: Sequence[int] = (1, 1),
        groups: int = 1,
        padding_algorithm: str = "EXPLICIT",
        data_format: str = "NCHW",
    ) -> tuple[Any, Any, None]:
        """Both gradients are matrix products with the matrix of the forward pass, transposed."""
        window = Window.of(
            image.shape, weight.shape[2:], strides=strides, paddings=paddings,
            dilations=dilations, groups=groups, padding_algorithm=padding_algorithm,
            data_format=data_format,
        )  # fmt: skip
        return _convolve_grad(xp, image, weight, d_out, window, needs)

    return definition


conv2d = _declare(
    "conv2d",
    _samples,
    """Convolve images with filters (cross-correlation, as everywhere in deep learning).

    ``Input`` is ``(batch, channels, height, width)`` or, for ``data_format`` NHWC, ``(batch,
    height, width, channels)``; ``Filter`` is ``(filters, channels / groups, height, width)``.
    ``paddings`` are two or four numbers; SAME and VALID choose them and SAME ignores dilations.
    Source: Paddle op ``conv2d``.
    """,
)

depthwise_conv2d = _declare(
    "depthwise_conv2d",
    _depthwise_samples,
    """A convolution of each channel by itself: ``conv2d`` with as many groups as channels.

    Source: Paddle op ``depthwise_conv2d``.
    """,
)
