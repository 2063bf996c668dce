"""Convolution of channels-last images: by oneDNN if installed, else by matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.engine.kernels import onednn
from dpexec.engine.kernels.convolution_primitives import Convolution, Form, emit, takes
from dpexec.engine.kernels.eight_bits import Scaling, is_small
from dpexec.engine.kernels.elementwise import COPY
from dpexec.engine.kernels.implementations import find
from dpexec.engine.kernels.lowering import Buffer, Code, Value, keywords, lowering
from dpexec.engine.kernels.onednn import BIAS, WEIGHTS
from dpexec.engine.kernels.onednn_epilogues import Epilogue
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._windows import has_channels_last
from dpexec.engine.ops.conv2d_transpose import window_of

# ---- operators


def _laid(code: Code, images: Value, data_format: str) -> Value:
    """Images with their channels last in memory; NHWC images are so already."""
    return code.laid(images, not has_channels_last(data_format))


def _mark(images: Value, data_format: str) -> None:
    images.channels_last = images.has_planes and not has_channels_last(data_format)


def _between(like: Value) -> Value:
    return Value(like.shape, like.dtype, Buffer(like.nbytes))


def _activated(code: Code, type: str, *inputs: Value, out: Value | None = None) -> Value:
    """The result of the relu, or its gradient, that is fused into a convolution."""
    made = out or _between(inputs[0])
    lower = find(type, "code")
    assert lower is not None
    lower(code, inputs, [made], {})
    return made


def _gradient_slots(
    values: Sequence[Value | None],
) -> tuple[Value, Value | None, Value | None]:
    """The gradient of the result, and those of images and filters; biases are left out."""
    d_out, d_image, d_weight = values[1:4] if len(values) == 5 else values
    assert d_out is not None
    return d_out, d_image, d_weight


@lowering("conv2d", "depthwise_conv2d", "conv3d", layout="own", attrs=keywords(Window.of))
def conv2d(
    code: Code,
    image: Value,
    weight: Value,
    *others: Value | None,
    data_format: str,
    fuse_relu_before_depthwise_conv: bool,
    fuse_activation: str,
    fuse_alpha: float,
    fuse_residual_connection: bool,
    force_fp32_output: bool,
    Scale_in: float,
    Scale_out: float,
    Scale_weights: Sequence[float],
    **attrs: Any,
) -> Any:
    """One call, after one for the filters; bias, residual sum and activation are part of it."""
    *biases, residual, out = others
    assert out is not None
    window = Window.of(image.shape, weight.shape[2:], data_format=data_format, **attrs)
    made = Convolution.of(image, weight, window)
    bias = biases[0] if biases else None
    residual = residual if fuse_residual_connection else None
    scaling = None
    if is_small(image):
        if not onednn.adds_bytes_exactly():
            return False
        scale_out = 1.0 if force_fp32_output else Scale_out
        scaling = Scaling(Scale_in, Scale_weights, scale_out, made.filters)
    epilogue = Epilogue(
        scaled=((WEIGHTS, made.filter_mask),) if scaling else (),
        added=float(residual is not None),
        activation=fuse_activation,
        alpha=fuse_alpha if fuse_activation in ("relu6", "leaky_relu") else 0.0,
    )
    form = Form.of(image, out, bias, epilogue, scaling.weights if scaling else ())
    read = [value for value in (weight, bias, residual) if value is not None]
    if not Epilogue.knows(fuse_activation) or not takes(made, (image, *read), "forward", form=form):
        return False
    if fuse_relu_before_depthwise_conv:
        image = _activated(code, "relu", image)
    _mark(out, data_format)
    image = _laid(code, image, data_format)
    if residual is not None:
        _begin_with(code, _laid(code, residual, data_format), out, image)
    more = scaling.arguments(code, bias) if scaling else {BIAS: bias} if bias else {}
    emit(code, "forward", made, image, weight, out, form, more)


def _begin_with(code: Code, residual: Value, out: Value, image: Value) -> None:
    """Let the numbers that are added lie where the result goes."""
    if residual.buffer is image.buffer or not code.reuse(out, residual):
        COPY.emit(code, out, residual)


@lowering(
    "conv2d_grad", "depthwise_conv2d_grad", "conv3d_grad", layout="own", attrs=keywords(Window.of)
)
def conv2d_grad(
    code: Code,
    image: Value,
    weight: Value,
    *others: Value | None,
    data_format: str,
    fuse_relu_before_depthwise_conv: bool,
    **attrs: Any,
) -> Any:
    """One call for each gradient, and one for the filters."""
    d_out, d_image, d_weight = _gradient_slots(others)
    if len(others) == 5 and others[-1] is not None:  # a bias learns, too
        return False
    window = Window.of(image.shape, weight.shape[2:], data_format=data_format, **attrs)
    made = Convolution.of(image, weight, window)
    ways = {"backward_data": d_image, "backward_weights": d_weight}
    wanted = [what for what, gradient in ways.items() if gradient is not None]
    if not takes(made, (image, weight, d_out), *wanted):
        return False
    if fuse_relu_before_depthwise_conv:
        image = _activated(code, "relu", image)
    image, d_out = _laid(code, image, data_format), _laid(code, d_out, data_format)
    if d_image is not None:
        d_taken = _between(d_image) if fuse_relu_before_depthwise_conv else d_image
        _mark(d_taken, data_format)
        emit(code, "backward_data", made, d_taken, weight, d_out)
        if d_taken is not d_image:
            _activated(code, "relu_grad", image, d_taken, out=d_image)
    if d_weight is not None:
        emit(code, "backward_weights", made, image, d_weight, d_out)


# ---- transposed: its image is the result of a convolution


def _transposed(image: Value, weight: Value, window: Window) -> Convolution:
    channels = weight.shape[1] * window.groups
    return Convolution(image.shape[0], channels, weight.shape[0], window)


@lowering(
    "conv2d_transpose",
    "depthwise_conv2d_transpose",
    "conv3d_transpose",
    layout="own",
    attrs=keywords(window_of),
)
def conv2d_transpose(
    code: Code,
    image: Value,
    weight: Value,
    *others: Value | None,
    data_format: str,
    **attrs: Any,
) -> Any:
    """As the gradient of a convolution."""
    out = others[-1]
    assert out is not None
    window = window_of(image.shape, weight.shape, data_format=data_format, **attrs)
    made = _transposed(image, weight, window)
    added = any(value is not None for value in others[:-1])
    if added or not takes(made, (image, weight), "backward_data"):
        return False
    _mark(out, data_format)
    emit(code, "backward_data", made, out, weight, _laid(code, image, data_format))


@lowering(
    "conv2d_transpose_grad",
    "depthwise_conv2d_transpose_grad",
    "conv3d_transpose_grad",
    layout="own",
    attrs=keywords(window_of),
)
def conv2d_transpose_grad(
    code: Code,
    image: Value,
    weight: Value,
    *others: Value | None,
    data_format: str,
    **attrs: Any,
) -> Any:
    """As a convolution, and as the gradient of its filters."""
    d_out, d_image, d_weight = _gradient_slots(others)
    window = window_of(image.shape, weight.shape, data_format=data_format, **attrs)
    made = _transposed(image, weight, window)
    ways = {"forward": d_image, "backward_weights": d_weight}
    wanted = [what for what, gradient in ways.items() if gradient is not None]
    if not takes(made, (image, weight, d_out), *wanted):
        return False
    image, d_out = _laid(code, image, data_format), _laid(code, d_out, data_format)
    if d_image is not None:
        _mark(d_image, data_format)
        emit(code, "forward", made, d_out, weight, d_image)
    if d_weight is not None:
        emit(code, "backward_weights", made, d_out, d_weight, image)
