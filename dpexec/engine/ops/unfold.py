"""``unfold``: windows over images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.engine.ir.opdef import Sample, Spec, op, require
from dpexec.engine.ops._shapes import product

Ints = Sequence[int]


def _steps(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Positions of a window along one axis, -1 where unknown."""
    if size < 0:
        return -1
    reach = dilation * (kernel - 1) + 1
    require(
        size + padding >= reach,
        f"the window reaches over {reach} elements, but the padded image has {size + padding}",
    )
    return (size + padding - reach) // stride + 1


def _positions(size: Ints, kernel: Ints, strides: Ints, paddings: Ints, dilations: Ints) -> Ints:
    """Positions of the window over height and width; paddings are top, left, bottom, right."""
    return [
        _steps(size[i], kernel[i], strides[i], paddings[i] + paddings[i + 2], dilations[i])
        for i in (0, 1)
    ]


def _infer_unfold(
    x: Spec,
    *,
    kernel_sizes: Ints,
    strides: Ints,
    paddings: Ints,
    dilations: Ints,
) -> Spec:
    require(x.rank == 4, f"X {x} must be images (N, C, H, W)")
    for name, values in (("kernel_sizes", kernel_sizes), ("strides", strides),
                         ("dilations", dilations)):  # fmt: skip
        require(
            len(values) == 2 and min(values) > 0,
            f"{name} must be two positive numbers, but is {list(values)}",
        )
    require(
        len(paddings) == 4 and min(paddings) >= 0,
        f"paddings must be four numbers that are not negative, but is {list(paddings)}",
    )
    places = _positions(x.shape[2:], kernel_sizes, strides, paddings, dilations)
    columns = (product((x.shape[1], *kernel_sizes)), product(places))
    return x.replace(shape=(x.shape[0], *columns), lod_level=0)


def _places(places: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> Iterator[Any]:
    """For each element of the window, its number, and the part of a padded image that it reads."""
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            starts = (i * dilations[0], j * dilations[1])
            spans = (
                slice(start, start + step * (count - 1) + 1, step)
                for start, step, count in zip(starts, strides, places, strict=True)
            )
            yield i * kernel[1] + j, (slice(None), slice(None), *spans)


def _padded_shape(shape: Ints, paddings: Ints) -> tuple[int, ...]:
    top, left, bottom, right = paddings
    return (shape[0], shape[1], shape[2] + top + bottom, shape[3] + left + right)


def _inner(shape: Ints, paddings: Ints) -> Any:
    top, left = paddings[:2]
    return (..., slice(top, top + shape[2]), slice(left, left + shape[3]))


def _window(kernel: int, stride: int, padding: int, dilation: int) -> dict[str, list[int]]:
    return {
        "kernel_sizes": [kernel] * 2,
        "strides": [stride] * 2,
        "paddings": [padding] * 4,
        "dilations": [dilation] * 2,
    }


@op(
    "unfold",
    inputs="X",
    outputs="Y",
    infer=_infer_unfold,
    samples=lambda r: [
        Sample({"X": r.normal((2, 3, 4, 5))}, _window(2, 1, 0, 1)),
        Sample({"X": r.normal((1, 2, 5, 5))}, _window(3, 2, 1, 1)),
        Sample(
            {"X": r.normal((2, 1, 6, 5))},
            {
                "kernel_sizes": [3, 2],
                "strides": [1, 2],
                "paddings": [1, 0, 2, 1],
                "dilations": [2, 1],
            },
        ),
    ],
    operand_ulps=1,
)
def unfold(
    xp: Any,
    x: Any,
    *,
    kernel_sizes: Ints,
    strides: Ints,
    paddings: Ints,
    dilations: Ints,
) -> Any:
    """Every window over the images as a column: ``(N, C * kh * kw, positions)``.

    Source: Paddle op ``unfold``.
    """
    padded = xp.zeros(_padded_shape(x.shape, paddings), dtype=x.dtype)
    padded[_inner(x.shape, paddings)] = x
    places = _positions(x.shape[2:], kernel_sizes, strides, paddings, dilations)
    elements = kernel_sizes[0] * kernel_sizes[1]
    columns = xp.empty((*x.shape[:2], elements, *places), dtype=x.dtype)
    for element, meets in _places(places, kernel_sizes, strides, dilations):
        columns[:, :, element] = padded[meets]
    return columns.reshape(x.shape[0], x.shape[1] * elements, -1)


@unfold.grad("X", "Y@GRAD", dense=True, operand_ulps=2)
def unfold_grad(
    xp: Any,
    x: Any,
    d_y: Any,
    *,
    kernel_sizes: Ints = (),
    strides: Ints = (),
    paddings: Ints = (),
    dilations: Ints = (),
) -> Any:
    """Every element of a window is added to its pixel."""
    places = _positions(x.shape[2:], kernel_sizes, strides, paddings, dilations)
    columns = d_y.reshape(*x.shape[:2], kernel_sizes[0] * kernel_sizes[1], *places)
    padded = xp.zeros(_padded_shape(x.shape, paddings), dtype=x.dtype)
    for element, meets in _places(places, kernel_sizes, strides, dilations):
        padded[meets] += columns[:, :, element]
    return padded[_inner(x.shape, paddings)]
