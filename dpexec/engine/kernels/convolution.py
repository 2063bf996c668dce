"""Convolution of channels-last images: by oneDNN if installed, else by matrix products."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows, at
from dpexec.engine.kernels import im2col, onednn, onednn_calls
from dpexec.engine.kernels.implementations import find
from dpexec.engine.kernels.lowering import Buffer, Code, Constant, Value, keywords, lowering
from dpexec.engine.kernels.onednn import (
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    SRC,
    WEIGHTS,
    Layout,
    Primitive,
)
from dpexec.engine.kernels.onednn_threads import with_threads
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._windows import channels_of, has_channels_last
from dpexec.engine.ops.conv2d_transpose import window_of

_VECTOR = 16
"""Channels that oneDNN computes at once."""
_WASTE = 16
"""The library's preferred method is left out if it does so many times the work that is needed."""


@dataclass(frozen=True)
class Convolution:
    """The numbers of a convolution.

    Args:
        batch: number of images.
        channels: of the images.
        filters: channels of the result.
        window: sizes, strides and padding of the window.
    """

    batch: int
    channels: int
    filters: int
    window: Window

    @staticmethod
    def of(image: Value, weight: Value, window: Window) -> Convolution:
        """The convolution of an operator."""
        channels = channels_of(image.shape, window.layout)
        return Convolution(image.shape[0], channels, weight.shape[0], window)

    def at(self, rows: Counts) -> Convolution:
        """The convolution for certain numbers of rows."""
        return replace(self, batch=at(self.batch, rows))

    @property
    def image(self) -> tuple[int, ...]:
        """Batch, channels and size of the images."""
        return self.batch, self.channels, *self.window.size

    @property
    def out(self) -> tuple[int, ...]:
        """Batch, channels and size of the result."""
        return self.batch, self.filters, *self.window.output

    @property
    def weight(self) -> tuple[int, ...]:
        """Shape of the filters: groups first if there are any."""
        groups = self.window.groups
        of_one = self.channels // groups, *self.window.kernel
        return (groups, self.filters // groups, *of_one) if groups > 1 else (self.filters, *of_one)

    @property
    def work(self) -> int:
        """Products of numbers."""
        each = self.channels // self.window.groups * math.prod(self.window.kernel)
        return math.prod(self.out) * each

    @property
    def wastes(self) -> bool:
        """Whether the gradient of the images is faster as a product with a matrix of windows.

        oneDNN goes over all pixels of the images, with as many channels as a vector holds, even if
        few of them are needed. For sentences of 60 words of width 64 as images with one channel,
        and 64 filters of 3 x 64, it takes 15 ms instead of 0.5.
        """
        visited = math.prod(self.window.size) * max(self.channels, _VECTOR)
        needed = math.prod(self.window.output) * self.channels
        return self.window.groups == 1 and visited > _WASTE * needed


# ---- oneDNN


def _main(what: str, made: Convolution, threads: int = 1) -> Primitive | None:
    """A convolution; None if the library cannot compute it."""
    rank = len(made.image)
    order = (0, *range(2, rank), 1)
    window = made.window
    return onednn.convolution(
        what,
        onednn.described(made.image, order),
        onednn.described(made.weight),
        onednn.described(made.out, order),
        window.strides,
        window.dilations,
        window.pads,
        "gemm" if what == "backward_data" and made.wastes else "",
        threads,
    )


@functools.lru_cache(limit_of("convolutions"))
def _primitives(what: str, made: Convolution) -> tuple[Primitive, Primitive | None] | None:
    """A convolution, and the reorder of its filters; None if the library cannot compute it."""
    main = _main(what, made)
    if main is None:
        return None
    backward = what == "backward_weights"
    wanted = main.layout(DIFF_WEIGHTS if backward else WEIGHTS)
    plain = onednn.described(made.weight, range(len(made.weight)))
    if wanted.is_like(plain):
        return main, None
    return main, onednn.reorder(wanted, plain) if backward else onednn.reorder(plain, wanted)


def _found(what: str, made: Convolution) -> tuple[Primitive, Primitive | None]:
    found = _primitives(what, made)
    if found is None:
        raise NeedsNumber("the library has no such convolution for this number of rows")
    return found


def _turned(code: Code, turning: Primitive, weight: Value, layout: Layout) -> Value | Constant:
    """Filters in the layout of a convolution: brought there once if nobody changes them."""
    target: Value | Constant
    once: tuple[Any, ...] = ()
    if code.packed is None or weight.name not in code.packed.names or weight.buffer is not None:
        target = code.scratch(layout.nbytes, dtype=np.uint8)
    else:
        done, target = code.packed.of(weight.name, layout)
        once = done, weight
    onednn_calls.emit(code, {SRC: weight, DST: target}, lambda count: turning, once=once)
    return target


def _emit(
    code: Code, what: str, made: Convolution, image: Value, weight: Value, out: Value
) -> None:
    """Call a convolution, or a gradient of it."""
    if not onednn.available():
        im2col.emit(code, what, made.window, image, weight, out)
        return
    rows = Rows.of(made.batch)
    main, turning = _found(what, made.at(rows.example if rows else ()))
    slots = _SLOTS[what]
    wanted, filters = slots[1], cast("Value | Constant", weight)
    if turning is not None and wanted == WEIGHTS:
        filters = _turned(code, turning, weight, main.layout(wanted))
    elif turning is not None:
        filters = code.scratch(main.layout(wanted).nbytes, dtype=np.uint8)
    layout = main.layout(wanted)

    def primitive(count: Counts) -> Primitive:
        this = made.at(count)
        found, _ = _found(what, this)
        if what == "forward":
            found = with_threads(
                found, code.threads, this.work, lambda: _main(what, this, code.threads)
            )
        if not found.layout(wanted).is_like(layout):
            raise NeedsNumber("filters that lie in another way than for other numbers of rows")
        return found

    onednn_calls.emit(code, dict(zip(slots, (image, filters, out), strict=True)), primitive, rows)
    if turning is not None and wanted == DIFF_WEIGHTS:
        onednn_calls.emit(code, {SRC: filters, DST: weight}, lambda count: turning)


_SLOTS = {
    "forward": (SRC, WEIGHTS, DST),
    "backward_data": (DIFF_SRC, WEIGHTS, DIFF_DST),
    "backward_weights": (SRC, DIFF_WEIGHTS, DIFF_DST),
}


# ---- operators


def _laid(code: Code, images: Value, data_format: str) -> Value:
    """Images with their channels last in memory; NHWC images are so already."""
    return code.laid(images, not has_channels_last(data_format))


def _mark(images: Value, data_format: str) -> None:
    images.channels_last = images.has_planes and not has_channels_last(data_format)


def _takes(made: Convolution, values: Sequence[Value], *ways: str) -> bool:
    """Whether there is code for a convolution's passes: forward, or gradients."""
    if made.window.crops or any(v.dtype != "float32" or not v.size for v in values):
        return False
    if not onednn.available():
        return im2col.takes(made.window)
    rows = Rows.of(made.batch)
    example = made.at(rows.example if rows else ())
    return all(_primitives(what, example) is not None for what in ways)


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
    **attrs: Any,
) -> Any:
    """One call, after one for the filters; forms with fused activations are left to NumPy."""
    out = others[-1]
    assert out is not None
    window = Window.of(image.shape, weight.shape[2:], data_format=data_format, **attrs)
    made = Convolution.of(image, weight, window)
    added = any(value is not None for value in others[:-1])
    if added or fuse_activation or not _takes(made, (image, weight), "forward"):
        return False
    if fuse_relu_before_depthwise_conv:
        image = _activated(code, "relu", image)
    _mark(out, data_format)
    _emit(code, "forward", made, _laid(code, image, data_format), weight, out)


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
    if not _takes(made, (image, weight, d_out), *wanted):
        return False
    if fuse_relu_before_depthwise_conv:
        image = _activated(code, "relu", image)
    image, d_out = _laid(code, image, data_format), _laid(code, d_out, data_format)
    if d_image is not None:
        d_taken = _between(d_image) if fuse_relu_before_depthwise_conv else d_image
        _mark(d_taken, data_format)
        _emit(code, "backward_data", made, d_taken, weight, d_out)
        if d_taken is not d_image:
            _activated(code, "relu_grad", image, d_taken, out=d_image)
    if d_weight is not None:
        _emit(code, "backward_weights", made, image, d_weight, d_out)


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
    if added or not _takes(made, (image, weight), "backward_data"):
        return False
    _mark(out, data_format)
    _emit(code, "backward_data", made, out, weight, _laid(code, image, data_format))


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
    if not _takes(made, (image, weight, d_out), *wanted):
        return False
    image, d_out = _laid(code, image, data_format), _laid(code, d_out, data_format)
    if d_image is not None:
        _mark(d_image, data_format)
        _emit(code, "forward", made, d_out, weight, d_image)
    if d_weight is not None:
        _emit(code, "backward_weights", made, d_out, d_weight, image)
