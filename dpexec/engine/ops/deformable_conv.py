"""``deformable_conv`` and ``deformable_conv_v1``: convolution with learned offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpexec.engine.core.light_dataclasses import dataclass
from dpexec.engine.core.runs import add_at
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
from dpexec.engine.ops._costs import with_filter
from dpexec.engine.ops._shapes import require_float, same_dims

Ints = Sequence[int]


def _window(
    image: Any,
    weight: Any,
    *,
    strides: Ints = (1, 1),
    paddings: Ints = (0, 0),
    dilations: Ints = (1, 1),
) -> Window:
    return Window.of(
        image.shape, weight.shape[2:], strides=strides, paddings=paddings, dilations=dilations,
        data_format="NCHW",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sampling:
    """The positions at which the elements of all windows read the images.

    All arrays are ``(samples, deformable groups, kernel elements * positions)``.

    Args:
        size: height and width of the images.
        row: the row of each element.
        column: the column of each element.
    """

    size: tuple[int, ...]
    row: Any
    column: Any

    @staticmethod
    def of(xp: Any, window: Window, offset: Any, groups: int) -> _Sampling:
        """From the offsets ``(samples, groups * kernel elements * 2, height, width)``."""
        shifts = offset.reshape(offset.shape[0], groups, -1, 2, *window.output)
        found = []
        for axis in (0, 1):
            steps = xp.arange(window.output[axis]) * window.strides[axis] - window.pads[axis][0]
            element = xp.arange(window.kernel[axis]) * window.dilations[axis]
            grid = (element[:, None, None] if axis == 0 else element[None, :, None]) + steps
            grid = xp.broadcast_to(grid, (*window.kernel, window.output[axis]))
            grid = grid.reshape(-1, window.output[axis]).astype(offset.dtype)
            grid = grid[:, :, None] if axis == 0 else grid[:, None, :]
            found.append((shifts[:, :, :, axis] + grid).reshape(offset.shape[0], groups, -1))
        return _Sampling(window.size, found[0], found[1])

    def corners(self, xp: Any) -> Iterator[tuple[Any, Any, Any, Any]]:
        """For each of the four surrounding pixels: number, weight, slopes along both axes."""
        height, width = self.size
        top, left = xp.floor(self.row), xp.floor(self.column)
        # One pixel before the image the slopes jump. There are many such elements where offsets
        # begin as zeros and images have a border; Paddle gives their offsets no gradient.
        reached = (self.row > -1) & (self.column > -1)
        for down in (0, 1):
            for right in (0, 1):
                i, j = (top + down).astype(np.int64), (left + right).astype(np.int64)
                inside = reached & (i >= 0) & (i < height) & (j >= 0) & (j < width)
                along = self.row - top if down else 1 - (self.row - top)
                across = self.column - left if right else 1 - (self.column - left)
                number = xp.clip(i, 0, height - 1) * width + xp.clip(j, 0, width - 1)
                yield (
                    number,
                    along * across * inside,
                    (1 if down else -1) * across * inside,
                    (1 if right else -1) * along * inside,
                )


def _pixels(xp: Any, image: Any, number: Any) -> Any:
    """``(samples, deformable groups, channels per group, kernel elements * positions)``."""
    planes = image.reshape(image.shape[0], number.shape[1], -1, image.shape[2] * image.shape[3])
    return xp.take_along_axis(planes, number[:, :, None], axis=3)


def _sampled(xp: Any, image: Any, sampling: _Sampling) -> Any:
    out: Any = 0
    for number, weight, _, _ in sampling.corners(xp):
        out = out + _pixels(xp, image, number) * weight[:, :, None]
    return out


def _convolve(
    xp: Any, image: Any, offset: Any, mask: Any, weight: Any, window: Window, groups: Ints
) -> Any:
    sampling = _Sampling.of(xp, window, offset, groups[1])
    columns = _sampled(xp, image, sampling)
    if mask is not None:
        columns = columns * mask.reshape(*columns.shape[:2], 1, -1)
    columns = columns.reshape(image.shape[0], groups[0], -1, window.output[0] * window.output[1])
    matrix = weight.reshape(groups[0], weight.shape[0] // groups[0], -1)
    return (matrix @ columns).reshape(image.shape[0], weight.shape[0], *window.output)


def _convolve_grad(
    xp: Any,
    image: Any,
    offset: Any,
    mask: Any,
    weight: Any,
    d_out: Any,
    window: Window,
    groups: Ints,
) -> tuple[Any, Any, Any, Any]:
    samples, positions = image.shape[0], window.output[0] * window.output[1]
    sampling = _Sampling.of(xp, window, offset, groups[1])
    plain = _sampled(xp, image, sampling)
    factor = None if mask is None else mask.reshape(*plain.shape[:2], 1, -1)
    columns = plain if factor is None else plain * factor
    columns = columns.reshape(samples, groups[0], -1, positions)
    matrix = weight.reshape(groups[0], weight.shape[0] // groups[0], -1)
    d_made = d_out.reshape(samples, groups[0], -1, positions)
    d_weight = (d_made @ columns.transpose(0, 1, 3, 2)).sum(axis=0).reshape(weight.shape)
    d_columns = (matrix.transpose(0, 2, 1) @ d_made).reshape(plain.shape)
    d_mask = None
    if factor is not None:
        d_mask = (d_columns * plain).sum(axis=2).reshape(mask.shape)
        d_columns = d_columns * factor
    planes, size = samples * groups[1], window.size[0] * window.size[1]
    d_pixels = xp.zeros((planes * size, plain.shape[2]), dtype=image.dtype)
    first = xp.arange(planes).reshape(samples, groups[1], 1) * size
    d_row: Any = 0
    d_column: Any = 0
    for number, share, along, across in sampling.corners(xp):
        add_at(xp, d_pixels, first + number, (d_columns * share[:, :, None]).swapaxes(2, 3))
        flow = (d_columns * _pixels(xp, image, number)).sum(axis=2)
        d_row, d_column = d_row + flow * along, d_column + flow * across
    shape = (samples, groups[1], -1, *window.output)
    d_offset = xp.stack([d_row.reshape(shape), d_column.reshape(shape)], axis=3)
    d_image = d_pixels.reshape(planes, size, -1).swapaxes(1, 2).reshape(image.shape)
    return d_image, d_offset.reshape(offset.shape), d_mask, d_weight


def _check(
    image: Spec, offset: Spec, mask: Spec | None, weight: Spec, window: Window, groups: Ints
) -> Spec:
    require_float(image, "Input")
    require(image.rank == weight.rank == 4, f"Input {image} and Filter {weight} must be images")
    channels = image.shape[1]
    require(
        min(groups) > 0
        and dims_match(channels, weight.shape[1] * groups[0])
        and weight.shape[0] % groups[0] == 0
        and weight.shape[0] % groups[1] == 0
        and (channels < 0 or channels % groups[1] == 0),
        f"Filter {weight} in {groups[0]} groups, {groups[1]} of which are deformed alike, does "
        f"not fit Input {image}",
    )
    elements = groups[1] * window.kernel[0] * window.kernel[1]
    for name, spec, count in (("Offset", offset, 2 * elements), ("Mask", mask, elements)):
        expected = (image.shape[0], count, *window.output)
        require(
            spec is None or same_dims(spec.shape, expected),
            f"{name} {spec} must be {list(expected)} for Input {image} and Filter {weight}",
        )
    return image.replace(shape=(image.shape[0], weight.shape[0], *window.output), lod_level=0)


def _with_mask(given: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """Image, offset, mask or None, and weight."""
    image, offset, *mask, weight = given
    return image, offset, mask[0] if mask else None, weight


def _declare(name: str, masked: bool, doc: str, samples: Any) -> OpDef:
    @passes_on(_window)
    def infer(*specs: Spec, groups: int = 1, deformable_groups: int = 1, **attrs: Any) -> Spec:
        image, offset, mask, weight = _with_mask(specs)
        window = _window(image, weight, **attrs)
        return _check(image, offset, mask, weight, window, (groups, deformable_groups))

    @passes_on(_window)
    def kernel(
        xp: Any, *arrays: Any, groups: int = 1, deformable_groups: int = 1, **attrs: Any
    ) -> Any:
        image, offset, mask, weight = _with_mask(arrays)
        window = _window(image, weight, **attrs)
        return _convolve(xp, image, offset, mask, weight, window, (groups, deformable_groups))

    kernel.__doc__ = doc
    slots = ["Input", "Offset", "Mask", "Filter"] if masked else ["Input", "Offset", "Filter"]
    definition = op(
        name,
        inputs=slots,
        outputs="Output",
        infer=infer,
        attrs={"im2col_step": 64, "strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1]},
        samples=samples,
        macs=with_filter,
    )(kernel)

    @definition.grad(*slots, "Output@GRAD", dense=True)
    @passes_on(_window)
    def kernel_grad(
        xp: Any, *arrays: Any, groups: int = 1, deformable_groups: int = 1, **attrs: Any
    ) -> tuple[Any, ...]:
        """The gradients: of pixels by weights, of offsets by slopes, of filters by columns."""
        image, offset, mask, weight = _with_mask(arrays[:-1])
        window = _window(image, weight, **attrs)
        alike = (groups, deformable_groups)
        made = _convolve_grad(xp, image, offset, mask, weight, arrays[-1], window, alike)
        return made if masked else (made[0], made[1], made[3])

    return definition


def _samples(masked: bool) -> Any:
    def offsets(r: SampleRng, shape: tuple[int, ...]) -> Any:
        """Away from whole numbers, where the slopes jump."""
        return r.integers(-1, 2, shape) + r.uniform(0.2, 0.8, shape)

    def call(r: SampleRng) -> list[Sample]:
        def sample(
            image: Ints, weight: Ints, out: tuple[int, int], alike: int = 1, **attrs: Any
        ) -> Sample:
            elements = alike * weight[2] * weight[3]
            inputs = {
                "Input": r.normal(image),
                "Offset": offsets(r, (image[0], 2 * elements, *out)),
                "Filter": r.normal(weight),
            }
            if masked:
                inputs["Mask"] = r.uniform(0.1, 1.0, (image[0], elements, *out))
            return Sample(inputs, {"deformable_groups": alike, "im2col_step": 1, **attrs})

        bordered = sample((2, 2, 4, 4), (2, 2, 3, 3), (4, 4), paddings=[1, 1])
        offset = r.integers(-1, 2, bordered.inputs["Offset"].shape) * 1.0
        offset[0] = 0.0
        return [
            sample((2, 2, 5, 4), (3, 2, 3, 2), (3, 3)),
            sample((2, 4, 5, 6), (4, 2, 3, 3), (3, 3), alike=2, groups=2, strides=[2, 2],
                   paddings=[1, 1]),
            sample((1, 2, 6, 5), (2, 2, 2, 2), (6, 6), dilations=[2, 1], paddings=[1, 1]),
            replace(bordered, inputs={**bordered.inputs, "Offset": offset}, smooth=False),
            replace(
                sample((2, 2, 4, 4), (2, 2, 2, 2), (3, 3), im2col_step=64),
                deviates=dict.fromkeys(
                    ("Output", "Input@GRAD", "Offset@GRAD", "Filter@GRAD")
                    + ("Mask@GRAD",) * masked,
                    "gives zeros where im2col_step is above 1, as it is by "
                    "default; dpexec gives the convolution",
                ),
            ),
        ]  # fmt: skip

    return call


deformable_conv = _declare(
    "deformable_conv",
    True,
    """A convolution whose window elements are moved by ``Offset`` and weighted by ``Mask``.

    ``Offset`` is ``(batch, deformable_groups * kernel elements * 2, height, width)``: the rows and
    columns by which every element of every window is moved; ``Mask`` has half as many channels.
    Images are interpolated bilinearly between pixels, and are 0 outside. ``im2col_step`` has no
    effect; Paddle's results are right only where it is 1. Source: Paddle op ``deformable_conv``;
    Zhu et al. 2018.
    """,
    _samples(masked=True),
)

deformable_conv_v1 = _declare(
    "deformable_conv_v1",
    False,
    """``deformable_conv`` without ``Mask``.

    Source: Paddle op ``deformable_conv_v1``; Dai et al. 2017.
    """,
    _samples(masked=False),
)
