"""``conv2d``, ``depthwise_conv2d`` and ``conv3d``: convolution of images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dpexec.engine.ir.opdef import (
    OpDef,
    Sample,
    SampleRng,
    Spec,
    dims_match,
    op,
    passes_on,
    require,
)
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._convolution_samples import (
    depthwise_samples,
    image_samples,
    volume_samples,
)
from dpexec.engine.ops._costs import with_filter
from dpexec.engine.ops._eight_bits import has_eight_bits, require_float_or_small
from dpexec.engine.ops._fused_convolution import (
    bias_grad,
    check_fused,
    infer_fused_grad,
    refuse_bias_flows,
    with_fused,
)
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops._small_convolution import infer_small, with_eight_bits
from dpexec.engine.ops._windows import channels_of, image_shape
from dpexec.engine.ops.relu import relu, relu_grad

_SHARED: dict[str, Any] = {
    "use_cudnn": False,
    "use_mkldnn": False,
    "exhaustive_search": False,
    "force_fp32_output": False,
    "workspace_size_MB": 512,
    "is_test": False,
    "fuse_relu": False,
    "fuse_beta": 0.0,
}
_OF_IMAGES: dict[str, Any] = {
    **_SHARED,
    "use_quantizer": False,
    "fuse_relu_before_depthwise_conv": False,
    "fuse_brelu": False,
    "fuse_brelu_threshold": 6.0,
    "Scale_in": 1.0,
    "Scale_in_eltwise": 1.0,
    "Scale_out": 1.0,
    "Scale_weights": [1.0],
    "strides": [1, 1],
    "paddings": [0, 0],
    "dilations": [1, 1],
    "data_format": "NCHW",
}
_OF_VOLUMES: dict[str, Any] = {
    **_SHARED,
    "strides": [1, 1, 1],
    "paddings": [0, 0, 0],
    "dilations": [1, 1, 1],
    "data_format": "NCDHW",
}


@passes_on(Window.of)
def _infer(
    image: Spec,
    weight: Spec,
    *others: Spec | None,
    strides: Sequence[int],
    groups: int = 1,
    data_format: str,
    fuse_relu: bool = False,
    fuse_activation: str = "",
    fuse_residual_connection: bool = False,
    **attrs: Any,
) -> Spec:
    require(not fuse_relu, "fuse_relu is of older versions: set fuse_activation")
    rank = len(strides) + 2
    require(image.rank == rank, f"Input {image} must have {rank} dimensions")
    require(weight.rank == rank, f"Filter {weight} must have {rank} dimensions")
    channels, filters = channels_of(image.shape, data_format), weight.shape[0]
    require(
        groups > 0 and dims_match(channels, weight.shape[1] * groups) and filters % groups == 0,
        f"Filter {weight} in {groups} groups does not fit Input {image}: it must be "
        f"[filters, channels / groups, height, width], filters divisible by groups",
    )
    window = Window.of(
        image.shape, weight.shape[2:], strides=strides, groups=groups, data_format=data_format,
        **attrs,
    )  # fmt: skip
    made = image.replace(shape=image_shape(image.shape[0], filters, window.output, data_format))
    check_fused(image, made, filters, others, fuse_activation, fuse_residual_connection)
    return made


@passes_on(_infer)
def _infer_of_volumes(image: Spec, *others: Spec | None, **attrs: Any) -> Spec:
    require_float(image, "Input")
    return _infer(image, *others, **attrs)


@passes_on(_infer)
def _infer_of_images(
    image: Spec,
    weight: Spec,
    *others: Spec | None,
    fuse_brelu: bool = False,
    use_mkldnn: bool = False,
    force_fp32_output: bool = False,
    Scale_weights: Sequence[float] = (1.0,),
    **attrs: Any,
) -> Spec:
    require(not fuse_brelu, "fuse_brelu is of older versions: set fuse_activation to relu6")
    require_float_or_small(image, "Input", use_mkldnn)
    made = _infer(image, weight, *others, **attrs)
    if not has_eight_bits(image):
        return made
    return infer_small(made, weight, others, attrs, force_fp32_output, Scale_weights)


def _convolve(xp: Any, image: Any, weight: Any, window: Window) -> Any:
    """Matrix products of the filters with the windows of some images at a time."""
    output, batch = window.output, image.shape[0]
    groups, filters = window.groups, weight.shape[0]
    matrix = weight.reshape(groups, filters // groups, -1)
    shape = image_shape(batch, filters, output, window.layout)
    out = xp.empty(shape, dtype=image.dtype)
    for part in window.chunks(batch, groups * matrix.shape[2], output):
        columns = window.unfold(xp, window.pad(xp, image[part]), output)
        made = xp.matmul(matrix, columns).reshape(filters, *output, part.stop - part.start)
        out[part] = window.images(made)
    return out


def _convolve_grad(
    xp: Any, image: Any, weight: Any, d_out: Any, window: Window, needs: Sequence[bool]
) -> tuple[Any, Any]:
    output, batch = window.output, image.shape[0]
    groups, filters = window.groups, weight.shape[0]
    matrix = weight.reshape(groups, filters // groups, -1)
    d_image = xp.empty(image.shape, dtype=image.dtype) if needs[0] else None
    d_matrix = xp.zeros(matrix.shape, dtype=weight.dtype) if needs[1] else None
    for part in window.chunks(batch, groups * matrix.shape[2], output):
        d_made = window.grouped(xp, d_out[part])
        if d_matrix is not None:
            columns = window.unfold(xp, window.pad(xp, image[part]), output)
            d_matrix += xp.matmul(d_made, columns.transpose(0, 2, 1))
        if d_image is not None:
            d_columns = xp.matmul(matrix.transpose(0, 2, 1), d_made)
            d_padded = window.fold(xp, d_columns, output, part.stop - part.start)
            d_image[part] = window.unpad(xp, d_padded)
    return d_image, None if d_matrix is None else d_matrix.reshape(weight.shape)


def _declare(
    name: str,
    doc: str,
    samples: Callable[[SampleRng], list[Sample]],
    attrs: dict[str, Any],
    *,
    bias: str = "",
    **facts: Any,
) -> tuple[OpDef, OpDef]:
    """A convolution and its gradient; ``bias`` is the slot of the bias, which only images have."""

    @passes_on(Window.of)
    def kernel(
        xp: Any,
        image: Any,
        weight: Any,
        *others: Any,
        fuse_activation: str = "",
        fuse_alpha: float = 0.0,
        fuse_residual_connection: bool = False,
        **attrs: Any,
    ) -> Any:
        window = Window.of(image.shape, weight.shape[2:], **attrs)
        out = _convolve(xp, image, weight, window)
        residual = others[-1] if fuse_residual_connection else None
        added = others[0] if bias and others else None
        return with_fused(xp, out, added, residual, window, fuse_activation, fuse_alpha)

    kernel.__doc__ = doc
    definition = op(
        name,
        inputs=f"Input Filter {bias} ResidualData?",
        outputs="Output",
        infer=_infer_of_images if bias else _infer_of_volumes,
        operand_ulps=8,
        attrs=attrs,
        samples=samples,
        macs=with_filter,
        **facts,
    )(kernel)
    return definition, _with_gradient(definition, bias)


def _with_gradient(definition: OpDef, bias: str) -> OpDef:
    slots = ["Input", "Filter", *([bias] if bias else []), "Output@GRAD"]

    outputs = "Input@GRAD Filter@GRAD" + (" Bias@GRAD" if bias else "")

    @definition.grad(*slots, outputs=outputs, infer=infer_fused_grad, operand_ulps=8)
    @passes_on(Window.of)
    def kernel_grad(
        xp: Any,
        image: Any,
        weight: Any,
        *others: Any,
        needs: tuple[bool, ...] = (True, True, False),
        **attrs: Any,
    ) -> tuple[Any, ...]:
        """Both gradients are matrix products with the matrix of the forward pass, transposed."""
        window = Window.of(image.shape, weight.shape[2:], **attrs)
        made = _convolve_grad(xp, image, weight, others[-1], window, needs)
        if not bias:
            return made
        return (*made, bias_grad(others[-1], others[0], window) if needs[2] else None)

    return kernel_grad


def _infer_double(
    image: Spec, weight: Spec, d_out: Spec, ddimage: Spec | None, ddweight: Spec | None
) -> tuple[Spec, Spec, Spec]:
    return image, weight, d_out


def _with_double_gradient(gradient: OpDef) -> None:
    @gradient.double_grad(
        "Input", "Filter", "DOutput", "DDInput?", "DDFilter?",
        outputs="DInput DFilter DDOutput", infer=_infer_double,
    )  # fmt: skip
    @passes_on(Window.of)
    def kernel_grad_grad(
        xp: Any,
        image: Any,
        weight: Any,
        d_out: Any,
        ddimage: Any,
        ddweight: Any,
        *,
        needs: tuple[bool, ...] = (True, True, True),
        **attrs: Any,
    ) -> tuple[Any, Any, Any]:
        """The gradients of the gradients take the place of the inputs in all three products."""
        window = Window.of(image.shape, weight.shape[2:], **attrs)
        ddimage = xp.zeros_like(image) if ddimage is None else ddimage
        ddweight = xp.zeros_like(weight) if ddweight is None else ddweight
        d_image, d_weight = (
            _convolve_grad(xp, ddimage, ddweight, d_out, window, needs)
            if needs[0] or needs[1]
            else (None, None)
        )
        ddout = None
        if needs[2]:
            ddout = _convolve(xp, ddimage, weight, window)
            ddout += _convolve(xp, image, ddweight, window)
        return d_image, d_weight, ddout


conv2d, _conv2d_grad = _declare(
    "conv2d",
    """Convolve images with filters (cross-correlation, as everywhere in deep learning).

    ``Input`` is ``(batch, channels, height, width)`` or, for ``data_format`` NHWC, ``(batch,
    height, width, channels)``; ``Filter`` is ``(filters, channels / groups, height, width)``.
    ``paddings`` are two or four numbers; SAME and VALID choose them and SAME ignores dilations.
    Models that were optimized for MKL-DNN add ``Bias``, a number for each filter, with
    ``fuse_residual_connection`` also ``ResidualData``, and apply ``fuse_activation``. Those that
    were quantized have images of int8 or uint8: filters are converted to int8 by ``Scale_weights``.
    The result is multiplied by ``Scale_out`` and converted to int8 or uint8; it is float32 with
    ``force_fp32_output``. Source: Paddle op ``conv2d``.
    """,
    image_samples,
    _OF_IMAGES,
    bias="Bias?",
    capturable=True,
    precision="white",
    quantized="weights outputs",
)

depthwise_conv2d, _depthwise_conv2d_grad = _declare(
    "depthwise_conv2d",
    """A convolution of each channel by itself: ``conv2d`` with as many groups as channels.

    Source: Paddle op ``depthwise_conv2d``.
    """,
    depthwise_samples,
    _OF_IMAGES,
    bias="Bias?",
    capturable=True,
    quantized="weights outputs",
)


def _with_relu_before(forward: OpDef, gradient: OpDef) -> None:
    """Let the kernels apply relu to the images if an attribute says so."""
    convolve, convolve_grad = forward.kernel, gradient.kernel

    def kernel(
        xp: Any,
        image: Any,
        *others: Any,
        fuse_relu_before_depthwise_conv: bool = False,
        **attrs: Any,
    ) -> Any:
        image = relu(xp, image) if fuse_relu_before_depthwise_conv else image
        return convolve(xp, image, *others, **attrs)

    def kernel_grad(
        xp: Any,
        image: Any,
        *others: Any,
        fuse_relu_before_depthwise_conv: bool = False,
        **attrs: Any,
    ) -> tuple[Any, ...]:
        image = relu(xp, image) if fuse_relu_before_depthwise_conv else image
        d_image, *found = convolve_grad(xp, image, *others, **attrs)
        if fuse_relu_before_depthwise_conv and d_image is not None:
            d_image = relu_grad(xp, image, d_image)
        return d_image, *found

    for definition, changed in ((forward, kernel), (gradient, kernel_grad)):
        changed.__doc__ = definition.kernel.__doc__
        definition.kernel = changed
        definition.kernel_arguments |= {"fuse_relu_before_depthwise_conv"}


for _convolution in (conv2d, depthwise_conv2d):
    with_eight_bits(_convolution, _convolve)
_with_relu_before(depthwise_conv2d, _depthwise_conv2d_grad)

conv3d, _conv3d_grad = _declare(
    "conv3d",
    """Convolve volumes with filters: ``conv2d`` with a depth before the height.

    ``Input`` is ``(batch, channels, depth, height, width)`` or, for ``data_format`` NDHWC,
    ``(batch, depth, height, width, channels)``. Source: Paddle op ``conv3d``.
    """,
    volume_samples,
    _OF_VOLUMES,
)

for _gradient in (_conv2d_grad, _depthwise_conv2d_grad, _conv3d_grad):
    _with_double_gradient(_gradient)
    refuse_bias_flows(_gradient)
