"""``unfold`` and ``row_conv``: windows over images and over sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dpexec.ir.opdef import Sample, Spec, dims_match, op, require
from dpexec.ops._shapes import product, require_same_dtype

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
    kernel_sizes: Ints = (),
    strides: Ints = (),
    paddings: Ints = (),
    dilations: Ints = (),
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
    return x.replace(shape=(x.shape[0], product((x.shape[1], *kernel_sizes)), product(places)))


def _places(places: Ints, kernel: Ints, strides: Ints, dilations: Ints) -> Iterator[Any]:
    """For each element of the window, its number and what it meets of a padded image."""
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
)
def unfold(
    xp: Any,
    x: Any,
    *,
    kernel_sizes: Ints = (),
    strides: Ints = (),
    paddings: Ints = (),
    dilations: Ints = (),
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


@unfold.grad("X", "Y@GRAD")
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
    """Every element of a window added at its pixel."""
    places = _positions(x.shape[2:], kernel_sizes, strides, paddings, dilations)
    columns = d_y.reshape(*x.shape[:2], kernel_sizes[0] * kernel_sizes[1], *places)
    padded = xp.zeros(_padded_shape(x.shape, paddings), dtype=x.dtype)
    for element, meets in _places(places, kernel_sizes, strides, dilations):
        padded[meets] += columns[:, :, element]
    return padded[_inner(x.shape, paddings)]


def _infer_row_conv(x: Spec, weight: Spec) -> Spec:
    require_same_dtype(x, weight, "X and Filter")
    require(x.lod_level == 0 and x.rank == 3, f"X {x} must be dense sequences (N, T, D)")
    require(
        weight.rank == 2 and dims_match(weight.shape[1], x.shape[2]),
        f"Filter {weight} must have a row per step and the width of X {x}",
    )
    return x


@op(
    "row_conv",
    inputs="X Filter",
    outputs="Out",
    infer=_infer_row_conv,
    samples=lambda r: [
        Sample({"X": r.normal((2, 5, 3)), "Filter": r.normal((3, 3))}),
        Sample({"X": r.normal((1, 4, 2)), "Filter": r.normal((1, 2))}),
        Sample({"X": r.normal((3, 2, 1)), "Filter": r.normal((4, 1))}),
    ],
)
def row_conv(xp: Any, x: Any, weight: Any) -> Any:
    """``out[t] = sum(x[t + k] * filter[k])`` over the steps ``k`` to come; dense ``(N, T, D)``.

    Source: Paddle op ``row_conv``; Amodei and others, 2015 (Deep Speech 2).
    """
    out = x * weight[0]
    for step in range(1, min(len(weight), x.shape[1])):
        out[:, :-step] += x[:, step:] * weight[step]
    return out


@row_conv.grad("X", "Filter", "Out@GRAD")
def row_conv_grad(
    xp: Any, x: Any, weight: Any, d_out: Any, *, needs: tuple[bool, bool]
) -> tuple[Any, Any]:
    """The same sums from the other side."""
    steps = range(1, min(len(weight), x.shape[1]))
    d_x = d_weight = None
    if needs[0]:
        d_x = d_out * weight[0]
        for step in steps:
            d_x[:, step:] += d_out[:, :-step] * weight[step]
    if needs[1]:
        d_weight = xp.zeros_like(weight)
        d_weight[0] = (x * d_out).sum(axis=(0, 1))
        for step in steps:
            d_weight[step] = (x[:, step:] * d_out[:, :-step]).sum(axis=(0, 1))
    return d_x, d_weight
