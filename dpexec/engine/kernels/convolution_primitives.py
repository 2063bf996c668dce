"""Convolutions as calls of oneDNN, or of matrix products where it is not installed."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import cast

import numpy as np

from dpexec.engine.core.cache import limit_of
from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.ir.sizes import Counts, NeedsNumber, Rows, at
from dpexec.engine.kernels import im2col, onednn, onednn_calls
from dpexec.engine.kernels.lowering import Code, Constant, Value
from dpexec.engine.kernels.onednn import (
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    SRC,
    WEIGHTS,
    Primitive,
)
from dpexec.engine.kernels.onednn_epilogues import PLAIN, Epilogue
from dpexec.engine.kernels.onednn_threads import with_threads
from dpexec.engine.kernels.packing import packed
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._windows import channels_of

__all__ = ["Convolution", "Form", "emit", "takes"]

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
    def filter_mask(self) -> int:
        """The library's mask for numbers of each filter."""
        return 3 if self.window.groups > 1 else 1

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

    @property
    def overflows(self) -> bool:
        """Whether oneDNN 3.2 may write behind its scratch memory in the gradient of the filters.

        For windows of one pixel its method ``jit_1x1`` first copies the pixels that the strides
        meet. It copies whole vectors of channels, and counts their memory without the rest of the
        last vector. Other arrays are then overwritten, or the gradient is wrong.
        """
        single = math.prod(self.window.kernel) == 1 and any(s > 1 for s in self.window.strides)
        return single and self.channels // self.window.groups % _VECTOR != 0


# ---- oneDNN


@dataclass(frozen=True)
class Form:
    """The types of a convolution's numbers, and what is done with its result.

    Args:
        image: type of the images, as the library numbers types.
        out: type of the result.
        bias: whether a number is added for every filter.
        epilogue: what is done with the result.
        scales: factors of the filters that make them int8, one for each; empty: they stay float32.
    """

    image: int = onednn.FLOAT32
    out: int = onednn.FLOAT32
    bias: bool = False
    epilogue: Epilogue = PLAIN
    scales: tuple[float, ...] = ()

    @staticmethod
    def of(
        image: Value, out: Value, bias: Value | None, epilogue: Epilogue, scales: tuple[float, ...]
    ) -> Form:
        """The form for images and a result; for the rest see the class."""
        image_type, out_type = (
            onednn.NUMBERS.get(value.dtype.name, onednn.FLOAT32) for value in (image, out)
        )
        return Form(image_type, out_type, bias is not None, epilogue, scales)

    @property
    def weight(self) -> int:
        """Type of the filters."""
        return onednn.INT8 if self.scales else onednn.FLOAT32


_USUAL = Form()


def _main(what: str, made: Convolution, form: Form, threads: int = 1) -> Primitive | None:
    """A convolution; None if the library cannot compute it."""
    rank = len(made.image)
    order = (0, *range(2, rank), 1)
    window = made.window
    return onednn.convolution(
        what,
        onednn.described(made.image, order, form.image),
        onednn.described(made.weight, number=form.weight),
        onednn.described(made.out, order, form.out),
        window.strides,
        window.dilations,
        window.pads,
        "gemm" if what == "backward_data" and made.wastes else "",
        "jit_1x1" if what == "backward_weights" and made.overflows else "",
        threads,
        onednn.described([made.filters], [0]) if form.bias else None,
        form.epilogue,
    )


@functools.lru_cache(limit_of("convolutions"))
def _primitives(
    what: str, made: Convolution, form: Form = _USUAL
) -> tuple[Primitive, Primitive | None] | None:
    """A convolution, and the reorder of its filters; None if the library cannot compute it."""
    main = _main(what, made, form)
    if main is None:
        return None
    backward = what == "backward_weights"
    wanted = main.layout(DIFF_WEIGHTS if backward else WEIGHTS)
    plain = onednn.described(made.weight, range(len(made.weight)), form.weight)
    if wanted.is_like(plain) and not form.scales:
        return main, None
    if backward:
        return main, onednn.reorder(wanted, plain)
    return main, onednn.reorder(plain, wanted)


def _found(what: str, made: Convolution, form: Form) -> tuple[Primitive, Primitive | None]:
    found = _primitives(what, made, form)
    if found is None:
        raise NeedsNumber("the library has no such convolution for this number of rows")
    return found


def emit(
    code: Code,
    what: str,
    made: Convolution,
    image: Value,
    weight: Value,
    out: Value,
    form: Form = _USUAL,
    more: Mapping[int, Value | Constant] = MappingProxyType({}),
) -> None:
    """Call a convolution, or a gradient of it.

    Args:
        code: takes the calls.
        what: ``forward``, ``backward_data`` or ``backward_weights``.
        made: the numbers of the convolution.
        image: the images, or their gradient.
        weight: the filters, or their gradient.
        out: the result, or its gradient.
        form: its types, and what is done with the result.
        more: further arguments that the form needs, by number: bias and scales.
    """
    if not onednn.available():
        im2col.emit(code, what, made.window, image, weight, out)
        return
    rows = Rows.of(made.batch)
    main, turning = _found(what, made.at(rows.example if rows else ()), form)
    slots = _SLOTS[what]
    wanted, filters = slots[1], cast("Value | Constant", weight)
    if turning is not None and wanted == WEIGHTS:
        filters = packed(code, weight, turning, main.layout(wanted), form.scales)
    elif turning is not None:
        filters = code.scratch(main.layout(wanted).nbytes, dtype=np.uint8)
    layout = main.layout(wanted)

    def primitive(count: Counts) -> Primitive:
        this = made.at(count)
        found, _ = _found(what, this, form)
        if what == "forward":
            exact = form.weight == onednn.INT8
            found = with_threads(
                found, code.threads, this.work, lambda: _main(what, this, form, code.threads), exact
            )
        if not found.layout(wanted).is_like(layout):
            raise NeedsNumber("filters that lie in another way than for other numbers of rows")
        return found

    arguments = dict(zip(slots, (image, filters, out), strict=True))
    onednn_calls.emit(code, {**arguments, **more}, primitive, rows)
    if turning is not None and wanted == DIFF_WEIGHTS:
        onednn_calls.emit(code, {SRC: filters, DST: weight}, lambda count: turning)


_SLOTS = {
    "forward": (SRC, WEIGHTS, DST),
    "backward_data": (DIFF_SRC, WEIGHTS, DIFF_DST),
    "backward_weights": (SRC, DIFF_WEIGHTS, DIFF_DST),
}


def takes(made: Convolution, values: Sequence[Value], *ways: str, form: Form = _USUAL) -> bool:
    """Whether there is code for a convolution's passes.

    Args:
        made: the numbers of the convolution.
        values: its operands; all must hold float32 numbers, but for images of another form.
        ways: ``forward``, or names of gradients.
        form: its types, and what is done with the result.
    """
    if made.window.crops or not all(v.size for v in values):
        return False
    real = values if form.image == onednn.FLOAT32 else values[1:]
    if any(v.dtype != "float32" for v in real):
        return False
    if not onednn.available():
        return form == _USUAL and im2col.takes(made.window)
    rows = Rows.of(made.batch)
    example = made.at(rows.example if rows else ())
    return all(_primitives(what, example, form) is not None for what in ways)
