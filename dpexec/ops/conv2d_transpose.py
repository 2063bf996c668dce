"""``conv2d_transpose``: the gradient of a convolution as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpexec.ir.opdef import Sample, SampleRng, Spec, dims_match, op, require
from dpexec.ops._convolution import Window
from dpexec.ops._windows import Pair, image_axes, image_shape, padding, pair


def _window(
    image: Sequence[int],
    weight: Sequence[int],
    *,
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    output_size: Sequence[int],
    padding_algorithm: str,
    data_format: str,
) -> Window:
    """The window of the convolution that this op transposes: over images of its output size."""
    _, (rows, columns) = image_axes(data_format)
    size = (image[rows], image[columns])
    kernel, steps = pair("kernel", weight[2:]), pair("strides", strides)
    gaps = (1, 1) if padding_algorithm == "SAME" else pair("dilations", dilations)
    pads = padding(size, kernel, steps, paddings, padding_algorithm)
    made = [
        -1 if n < 0 else (n - 1) * s - sum(p) + d * (k - 1) + 1
        for n, s, p, d, k in zip(size, steps, pads, gaps, kernel, strict=True)
    ]
    if output_size:
        made = _chosen(made, steps, output_size)
    require(
        all(n != 0 and n >= -1 for n in made), f"nothing is left of the output: its size is {made}"
    )
    return Window((made[0], made[1]), kernel, steps, gaps, pads, groups, data_format)


def _chosen(least: Sequence[int], strides: Pair, output_size: Sequence[int]) -> list[int]:
    """The output size that was asked for, which must give the input size when convolved."""
    require(len(output_size) == 2, f"output_size {list(output_size)} must be two numbers")
    for wished, n, stride in zip(output_size, least, strides, strict=True):
        require(
            n < 0 or n <= wished < n + stride,
            f"output_size {list(output_size)} must be at least {list(least)}, and by less than "
            f"the strides {list(strides)} larger",
        )
    return list(output_size)


def _infer(
    image: Spec,
    weight: Spec,
    bias: Spec | None,
    *,
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    output_size: Sequence[int] = (),
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
    fuse_relu: bool = False,
    fuse_activation: str = "",
) -> Spec:
    require(bias is None, "Bias is not supported: add it with elementwise_add")
    require(not (fuse_relu or fuse_activation), "fused activations are not supported")
    require(image.rank == 4, f"Input {image} must have 4 dimensions")
    require(weight.rank == 4, f"Filter {weight} must have 4 dimensions")
    channel_axis, _ = image_axes(data_format)
    channels = image.shape[channel_axis]
    require(
        groups > 0 and dims_match(channels, weight.shape[0]) and weight.shape[0] % groups == 0,
        f"Filter {weight} in {groups} groups does not fit Input {image}: it must be "
        f"[channels, filters / groups, height, width], channels divisible by groups",
    )
    window = _window(
        image.shape, weight.shape, strides=strides, paddings=paddings, dilations=dilations,
        groups=groups, output_size=output_size, padding_algorithm=padding_algorithm,
        data_format=data_format,
    )  # fmt: skip
    shape = image_shape(image.shape[0], weight.shape[1] * groups, window.size, data_format)
    return image.replace(shape=shape, lod_level=0)


def _samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"Input": r.normal((2, 3, 3, 4)), "Filter": r.normal((3, 2, 3, 2))}),
        Sample(
            {"Input": r.normal((2, 4, 3, 2)), "Filter": r.normal((4, 3, 3, 3))},
            {"strides": [2, 2], "paddings": [1, 0], "dilations": [1, 2], "groups": 2},
        ),
        Sample(
            {"Input": r.normal((2, 3, 2, 3)), "Filter": r.normal((3, 2, 2, 2))},
            {"strides": [2, 3], "output_size": [7, 5], "data_format": "NHWC"},
        ),
    ]


@op(
    "conv2d_transpose",
    inputs="Input Filter Bias?",
    outputs="Output",
    infer=_infer,
    attrs={
        "strides": [1, 1],
        "paddings": [0, 0],
        "dilations": [1, 1],
        "output_size": [],
        "use_cudnn": False,
        "use_mkldnn": False,
        "fuse_alpha": 0.0,
        "fuse_beta": 0.0,
        "is_test": False,
        "workspace_size_MB": 512,
    },
    samples=_samples,
)
def conv2d_transpose(
    xp: Any,
    image: Any,
    weight: Any,
    bias: Any = None,
    *,
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    output_size: Sequence[int] = (),
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> Any:
    """Spread every element of the images over a window of the output, weighted by a filter.

    ``Filter`` is ``(channels, filters / groups, height, width)``. ``output_size`` chooses among
    the sizes that ``conv2d`` with the same attributes maps to the size of ``Input``.
    Source: Paddle op ``conv2d_transpose``; Zeiler et al. 2010.
    """
    window = _window(
        image.shape, weight.shape, strides=strides, paddings=paddings, dilations=dilations,
        groups=groups, output_size=output_size, padding_algorithm=padding_algorithm,
        data_format=data_format,
    )  # fmt: skip
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    _, (rows, columns) = image_axes(data_format)
    places, batch = (image.shape[rows], image.shape[columns]), image.shape[0]
    filters = weight.shape[1] * groups
    out = xp.empty(image_shape(batch, filters, window.size, data_format), dtype=image.dtype)
    for part in window.chunks(batch, groups * matrix.shape[2], places):
        spread = matrix.transpose(0, 2, 1) @ window.grouped(xp, image[part])
        out[part] = window.unpad(window.fold(xp, spread, places, part.stop - part.start))
    return out


@conv2d_transpose.grad(
    "Input", "Filter", "Bias?", "Output@GRAD", outputs="Input@GRAD Filter@GRAD Bias@GRAD"
)
def conv2d_transpose_grad(
    xp: Any,
    image: Any,
    weight: Any,
    bias: Any,
    d_out: Any,
    *,
    needs: Sequence[bool] = (True, True, False),
    strides: Sequence[int] = (1, 1),
    paddings: Sequence[int] = (0, 0),
    dilations: Sequence[int] = (1, 1),
    groups: int = 1,
    output_size: Sequence[int] = (),
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> tuple[Any, Any, None]:
    """To the images a convolution, to the filters a product with the matrix of its windows."""
    window = _window(
        image.shape, weight.shape, strides=strides, paddings=paddings, dilations=dilations,
        groups=groups, output_size=output_size, padding_algorithm=padding_algorithm,
        data_format=data_format,
    )  # fmt: skip
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    _, (rows, columns) = image_axes(data_format)
    places, batch = (image.shape[rows], image.shape[columns]), image.shape[0]
    d_image = xp.empty(image.shape, dtype=image.dtype) if needs[0] else None
    d_matrix = xp.zeros(matrix.shape, dtype=weight.dtype) if needs[1] else None
    for part in window.chunks(batch, groups * matrix.shape[2], places):
        spread = window.unfold(xp, window.pad(xp, d_out[part]), places)
        if d_matrix is not None:
            d_matrix += window.grouped(xp, image[part]) @ spread.transpose(0, 2, 1)
        if d_image is not None:
            d_made = (matrix @ spread).reshape(-1, *places, part.stop - part.start)
            d_image[part] = window.images(d_made)
    return d_image, None if d_matrix is None else d_matrix.reshape(weight.shape), None
