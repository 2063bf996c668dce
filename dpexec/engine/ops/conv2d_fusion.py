"""``conv2d_fusion`` and ``conv2d_inception_fusion``: convolutions that Paddle fuses for GPUs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpexec.engine.ir.opdef import Sample, SampleRng, Spec, dims_match, op, passes_on, require
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._costs import with_filter
from dpexec.engine.ops._pooling import Pooling
from dpexec.engine.ops._shapes import require_float, require_same_dtype, require_same_shape
from dpexec.engine.ops._windows import channels_of
from dpexec.engine.ops.conv2d import conv2d
from dpexec.engine.ops.relu import relu
from dpexec.engine.ops.sigmoid import sigmoid

_ACTIVATIONS = ("identity", "relu", "relu6", "sigmoid", "tanh")
_LIBRARY = {"workspace_size_MB": 512}


def _check_activation(activation: str) -> None:
    require(
        activation in _ACTIVATIONS,
        f"activation must be one of {_ACTIVATIONS}, but is {activation!r}",
    )


def _activated(xp: Any, x: Any, activation: str) -> Any:
    if activation == "identity":
        return x
    if activation == "relu":
        return relu(xp, x)
    if activation == "relu6":
        return xp.clip(x, x.dtype.type(0), x.dtype.type(6))
    return xp.tanh(x) if activation == "tanh" else sigmoid(xp, x)


def _plain(strides: Sequence[int], data_format: str) -> dict[str, Any]:
    """The layout of images or volumes: channels are first, independent of the attribute."""
    first = data_format in ("NCHW", "NCDHW", "AnyLayout")
    require(first, f"data_format must be NCHW, but is {data_format!r}")
    return {"strides": strides, "data_format": "NCHW" if len(strides) == 2 else "NCDHW"}


@passes_on(Window.of)
def _infer(
    image: Spec,
    weight: Spec,
    bias: Spec,
    residual: Spec | None,
    cache: Spec | None,
    *,
    strides: Sequence[int],
    groups: int = 1,
    data_format: str = "NCHW",
    activation: str = "relu",
    split_channels: Sequence[int] = (),
    **attrs: Any,
) -> tuple[Spec, list[Spec]]:
    require_float(image, "Input")
    _check_activation(activation)
    rank = len(strides) + 2
    require(rank in (4, 5), f"strides {list(strides)} must be two or three numbers")
    require(image.rank == rank, f"Input {image} must have {rank} dimensions")
    require(weight.rank == rank, f"Filter {weight} must have {rank} dimensions")
    layout = _plain(strides, data_format)
    channels, filters = channels_of(image.shape, "NCHW"), weight.shape[0]
    require(
        groups > 0 and dims_match(channels, weight.shape[1] * groups) and filters % groups == 0,
        f"Filter {weight} in {groups} groups does not fit Input {image}",
    )
    require(dims_match(bias.size, filters), f"Bias {bias} must have {filters} numbers")
    window = Window.of(image.shape, weight.shape[2:], groups=groups, **layout, **attrs)
    made = image.replace(shape=(image.shape[0], filters, *window.output), lod_level=0)
    for name, spec in (("Filter", weight), ("Bias", bias), ("ResidualData", residual)):
        if spec is not None:
            require_same_dtype(image, spec, f"Input and {name}")
    if residual is not None:
        require_same_shape(made, residual, "the result and ResidualData")
    require(
        not split_channels or (sum(split_channels) == filters and min(split_channels) > 0),
        f"split_channels {list(split_channels)} must add up to the {filters} filters",
    )
    shapes = [(made.shape[0], part, *made.shape[2:]) for part in split_channels]
    return made, [made.replace(shape=shape) for shape in shapes]


def _samples(r: SampleRng) -> list[Sample]:
    def call(*slots: str, **attrs: Any) -> Sample:
        inputs = {"Input": r.normal((2, 4, 5, 4)), "Filter": r.normal((6, 4, 3, 2))}
        inputs |= {"Bias": r.normal((6,))}
        if "ResidualData" in slots:
            inputs["ResidualData"] = r.normal((2, 6, 3, 3))
        return Sample(inputs, attrs)

    volumes = {"Input": r.normal((1, 2, 3, 4, 3)), "Filter": r.normal((3, 2, 2, 2, 2))}
    one = {"Input": np.array([[[[1.0, -2.0]], [[3.0, 4.0]]]]), "Bias": np.array([0.5, -7.0])}
    return [
        call(activation="identity"),
        call("ResidualData"),
        call("ResidualData", split_channels=[1, 3, 2], activation="relu6"),
        call(activation="tanh", strides=[2, 1], paddings=[1, 0], dilations=[1, 2]),
        call(activation="sigmoid", padding_algorithm="SAME"),
        Sample(
            volumes | {"Bias": r.normal((3,))},
            {"strides": [1, 1, 1], "paddings": [0, 0, 0], "dilations": [1, 1, 1]},
        ),
        Sample(
            one | {"Filter": np.array([[[[1.0]], [[1.0]]], [[[0.0]], [[2.0]]]])},
            {"split_channels": [1, 1]},
            expected={"Output": np.array([[[[4.5, 2.5]], [[0.0, 1.0]]]])},
        ),
    ]


_ATTRIBUTES: dict[str, Any] = {
    **_LIBRARY,
    "use_cudnn": False,
    "exhaustive_search": False,
    "search_times": -1,
    "strides": [1, 1],
    "paddings": [0, 0],
    "dilations": [1, 1],
}


@op(
    "conv2d_fusion",
    inputs="Input Filter Bias ResidualData? AlgoCache?",
    outputs="Output Outputs[]",
    infer=_infer,
    attrs=_ATTRIBUTES,
    no_grad=True,
    samples=_samples,
    macs=with_filter,
)
@passes_on(Window.of)
def conv2d_fusion(
    xp: Any,
    image: Any,
    weight: Any,
    bias: Any,
    residual: Any,
    cache: Any,
    *,
    strides: Sequence[int],
    data_format: str = "NCHW",
    activation: str = "relu",
    split_channels: Sequence[int] = (),
    **attrs: Any,
) -> tuple[Any, list[Any]]:
    """``activation(conv2d(image) + residual + bias)``, and parts of its channels.

    It occurs in models that Paddle optimized for GPUs; Paddle has no kernel of it for CPUs.
    ``Outputs`` are parts of the channels, with sizes ``split_channels``; Paddle divides only
    batches of one image. The images may be volumes. Source: Paddle op ``conv2d_fusion``.
    """
    layout = _plain(strides, data_format)
    out = conv2d(xp, image, weight, bias, None, **layout, **attrs)
    if residual is not None:
        out += residual
    out = _activated(xp, out, activation)
    ends = np.cumsum([0, *split_channels]).tolist()
    parts = [xp.ascontiguousarray(out[:, a:b]) for a, b in itertools.pairwise(ends)]
    return out, parts


_AROUND: dict[str, Any] = {"strides": [1, 1], "paddings": [1, 1]}


def _infer_inception(
    image: Spec,
    filters: list[Spec],
    biases: list[Spec],
    *,
    pooling_type: str,
    activation: str = "relu",
) -> tuple[Spec, list[Spec]]:
    require_float(image, "Input")
    _check_activation(activation)
    require(pooling_type in ("max", "avg"), f"pooling_type {pooling_type} is neither max nor avg")
    require(image.rank == 4, f"Input {image} must have 4 dimensions")
    require(len(filters) == len(biases) == 4, "there must be 4 filters and as many biases")
    sizes = (1, 1, 3, 3)
    for number, (weight, bias) in enumerate(zip(filters, biases, strict=True)):
        require_same_dtype(image, weight, "Input and Filter")
        require_same_dtype(image, bias, "Input and Bias")
        size = sizes[number]
        require(
            weight.rank == 4 and weight.shape[2:] == (size, size),
            f"filter {number} {weight} must be [filters, channels, {size}, {size}]",
        )
        require(bias.size == weight.shape[0], f"bias {number} {bias} must go with {weight}")
    first, second, third, fourth = (weight.shape for weight in filters)
    for number in (0, 1):
        require(
            dims_match(filters[number].shape[1], image.shape[1]),
            f"filter {number} {filters[number]} does not fit Input {image}",
        )
    kept = second[0] - 2 * third[1], third[0] - fourth[1]
    require(
        min(kept) >= 0 and third[0] % 2 == 0,
        f"filters {filters[1]}, {filters[2]} and {filters[3]} do not fit one another: the second "
        "makes twice the channels of the third or more, the third those of the fourth or more",
    )
    batch, _, *size_of_images = image.shape
    channels = first[0] + sum(kept) + fourth[0]
    made = image.replace(shape=(batch, channels, *size_of_images), lod_level=0)
    inner = made.replace(shape=(batch, third[0], *size_of_images))
    return made, [image.replace(lod_level=0), inner]


def _inception_samples(r: SampleRng) -> list[Sample]:
    def call(counts: tuple[int, int, int, int], inner: tuple[int, int], **attrs: Any) -> Sample:
        shapes = [(counts[0], 3, 1, 1), (counts[1], 3, 1, 1), (counts[2], inner[0], 3, 3)]
        shapes.append((counts[3], inner[1], 3, 3))
        inputs = {"Input": r.distinct((2, 3, 4, 5)), "Filter": [r.normal(s) for s in shapes]}
        return Sample(inputs | {"Bias": [r.normal((s[0],)) for s in shapes]}, attrs)

    return [
        call((2, 7, 6, 3), (2, 4), pooling_type="avg", activation="identity"),
        call((2, 4, 4, 1), (2, 2), pooling_type="max"),
        call((1, 5, 2, 2), (1, 2), pooling_type="avg", exclusive=False, activation="tanh"),
    ]


@op(
    "conv2d_inception_fusion",
    inputs="Input Filter[] Bias[]",
    outputs="Output TempOutput[]",
    infer=_infer_inception,
    attrs=_LIBRARY,
    no_grad=True,
    samples=_inception_samples,
)
def conv2d_inception_fusion(
    xp: Any,
    image: Any,
    filters: list[Any],
    biases: list[Any],
    *,
    pooling_type: str,
    exclusive: bool = True,
    activation: str = "relu",
) -> tuple[Any, list[Any]]:
    """A block of an inception net in one operator: four convolutions with biases and activations.

    The first reads the image pooled by 3 x 3, the second the image itself. The third, in two
    groups, reads the last channels of the second, and the fourth reads the last channels of the
    third. ``Output`` concatenates the first, the unread channels of the second and third, and the
    fourth. ``TempOutput`` is the pooled image and the third convolution. It occurs in models that
    Paddle optimized for GPUs. Source: Paddle op ``conv2d_inception_fusion``.
    """

    def convolved(number: int, x: Any, **attrs: Any) -> Any:
        given = {"strides": [1, 1], "paddings": [0, 0], "dilations": [1, 1]} | attrs
        out = conv2d(xp, x, filters[number], biases[number], None, data_format="NCHW", **given)
        return _activated(xp, out, activation)

    pooling = Pooling.of(image.shape[2:], ksize=[3, 3], **_AROUND, exclusive=exclusive)
    pooled = pooling.maximum(xp, image) if pooling_type == "max" else pooling.mean(xp, image)
    first, second = convolved(0, pooled), convolved(1, image)
    taken = second.shape[1] - 2 * filters[2].shape[1]
    third = convolved(2, xp.ascontiguousarray(second[:, taken:]), groups=2, paddings=[1, 1])
    rest = third.shape[1] - filters[3].shape[1]
    fourth = convolved(3, xp.ascontiguousarray(third[:, rest:]), paddings=[1, 1])
    out = xp.concatenate([first, second[:, :taken], third[:, :rest], fourth], axis=1)
    return out, [pooled, third]
