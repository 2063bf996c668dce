"""``conv2d_transpose`` and similar operators: the gradient of a convolution as a layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from dpexec.engine.ir.signature import Kernel
from dpexec.engine.ops._convolution import Window
from dpexec.engine.ops._costs import with_spread_filter
from dpexec.engine.ops._fused_convolution import (
    PLAIN,
    bias_grad,
    check_fused,
    infer_fused_grad,
    with_fused,
)
from dpexec.engine.ops._shapes import require_float
from dpexec.engine.ops._windows import Sizes, channels_of, image_shape, padding, size_of, sizes

_OF_IMAGES: dict[str, Any] = {
    "strides": [1, 1],
    "paddings": [0, 0],
    "dilations": [1, 1],
    "output_size": [],
    "use_cudnn": False,
    "use_mkldnn": False,
    "fuse_relu": False,
    "fuse_beta": 0.0,
    "is_test": False,
    "workspace_size_MB": 512,
}
_OF_VOLUMES: dict[str, Any] = {
    "strides": [1, 1, 1],
    "paddings": [0, 0, 0],
    "dilations": [1, 1, 1],
    "output_size": [],
    "use_cudnn": False,
    "use_mkldnn": False,
    "workspace_size_MB": 512,
}


def window_of(
    image: Sequence[int],
    weight: Sequence[int],
    *,
    strides: Sequence[int],
    paddings: Sequence[int],
    dilations: Sequence[int],
    groups: int = 1,
    output_size: Sequence[int] = (),
    padding_algorithm: str = "EXPLICIT",
    data_format: str = "NCHW",
) -> Window:
    """The window of the transposed convolution, over images of the operator's output size."""
    size = size_of(image, data_format)
    axes = len(size)
    kernel, steps = sizes("kernel", weight[2:], axes), sizes("strides", strides, axes)
    gaps = (1,) * axes if padding_algorithm == "SAME" else sizes("dilations", dilations, axes)
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
    return Window(tuple(made), kernel, steps, gaps, pads, groups, data_format)


def _chosen(least: Sequence[int], strides: Sizes, output_size: Sequence[int]) -> list[int]:
    """The output size that was asked for, which must give the input size when convolved."""
    require(
        len(output_size) == len(strides),
        f"output_size {list(output_size)} must be {len(strides)} numbers",
    )
    for wished, n, stride in zip(output_size, least, strides, strict=True):
        require(
            n < 0 or n <= wished < n + stride,
            f"output_size {list(output_size)} must be at least {list(least)}, and by less than "
            f"the strides {list(strides)} larger",
        )
    return list(output_size)


@passes_on(window_of)
def _infer(
    image: Spec,
    weight: Spec,
    *others: Spec | None,
    strides: Sequence[int],
    groups: int = 1,
    data_format: str = "NCHW",
    fuse_relu: bool = False,
    fuse_activation: str = "",
    **attrs: Any,
) -> Spec:
    require(not fuse_relu, "fuse_relu is of older versions: set fuse_activation")
    require_float(image, "Input")
    rank = len(strides) + 2
    require(image.rank == rank, f"Input {image} must have {rank} dimensions")
    require(weight.rank == rank, f"Filter {weight} must have {rank} dimensions")
    channels = channels_of(image.shape, data_format)
    require(
        groups > 0 and dims_match(channels, weight.shape[0]) and weight.shape[0] % groups == 0,
        f"Filter {weight} in {groups} groups does not fit Input {image}: it must be "
        f"[channels, filters / groups, height, width], channels divisible by groups",
    )
    window = window_of(
        image.shape, weight.shape, strides=strides, groups=groups, data_format=data_format, **attrs
    )
    filters = weight.shape[1] * groups
    shape = image_shape(image.shape[0], filters, window.size, data_format)
    made = image.replace(shape=shape, lod_level=0)
    check_fused(image, made, filters, (*others, None), fuse_activation, adds=False)
    return made


@passes_on(window_of)
def _infer_volumes(image: Spec, weight: Spec, **attrs: Any) -> Spec:
    """Without the attributes for fused activations, which Paddle gives to images only."""
    return _infer(image, weight, **attrs)


def _spread(xp: Any, image: Any, weight: Any, window: Window) -> Any:
    """Every element of the images, weighted by a filter, added to a window of the output."""
    groups, layout = window.groups, window.layout
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    places, batch = size_of(image.shape, layout), image.shape[0]
    shape = image_shape(batch, weight.shape[1] * groups, window.size, layout)
    out = xp.empty(shape, dtype=image.dtype)
    for part in window.chunks(batch, groups * matrix.shape[2], places):
        spread = xp.matmul(matrix.transpose(0, 2, 1), window.grouped(xp, image[part]))
        out[part] = window.unpad(xp, window.fold(xp, spread, places, part.stop - part.start))
    return out


def _spread_grad(
    xp: Any, image: Any, weight: Any, d_out: Any, window: Window, needs: Sequence[bool]
) -> tuple[Any, Any]:
    groups = window.groups
    matrix = weight.reshape(groups, weight.shape[0] // groups, -1)
    places, batch = size_of(image.shape, window.layout), image.shape[0]
    d_image = xp.empty(image.shape, dtype=image.dtype) if needs[0] else None
    d_matrix = xp.zeros(matrix.shape, dtype=weight.dtype) if needs[1] else None
    for part in window.chunks(batch, groups * matrix.shape[2], places):
        spread = window.unfold(xp, window.pad(xp, d_out[part]), places)
        if d_matrix is not None:
            d_matrix += xp.matmul(window.grouped(xp, image[part]), spread.transpose(0, 2, 1))
        if d_image is not None:
            d_made = xp.matmul(matrix, spread).reshape(-1, *places, part.stop - part.start)
            d_image[part] = window.images(d_made)
    return d_image, None if d_matrix is None else d_matrix.reshape(weight.shape)


def _plain_kernel() -> Kernel:
    @passes_on(window_of)
    def kernel(xp: Any, image: Any, weight: Any, **attrs: Any) -> Any:
        return _spread(xp, image, weight, window_of(image.shape, weight.shape, **attrs))

    return kernel


def _fused_kernel() -> Kernel:
    @passes_on(window_of)
    def kernel(
        xp: Any,
        image: Any,
        weight: Any,
        bias: Any = None,
        *,
        fuse_activation: str = "",
        fuse_alpha: float = 0.0,
        **attrs: Any,
    ) -> Any:
        window = window_of(image.shape, weight.shape, **attrs)
        out = _spread(xp, image, weight, window)
        return with_fused(xp, out, bias, None, window, fuse_activation, fuse_alpha)

    return kernel


def _declare(
    name: str,
    doc: str,
    samples: Callable[[SampleRng], list[Sample]],
    attrs: dict[str, Any],
    *,
    bias: str = "",
    **facts: Any,
) -> OpDef:
    """A transposed convolution; ``bias`` is the slot of the bias, which only images have."""
    kernel = _fused_kernel() if bias else _plain_kernel()
    kernel.__doc__ = doc
    definition = op(
        name,
        inputs=f"Input Filter {bias}",
        outputs="Output",
        infer=_infer if bias else _infer_volumes,
        attrs=attrs,
        operand_ulps=8,
        samples=samples,
        macs=with_spread_filter,
        **facts,
    )(kernel)
    slots = ["Input", "Filter", *([bias] if bias else []), "Output@GRAD"]

    outputs = "Input@GRAD Filter@GRAD" + (" Bias@GRAD" if bias else "")

    @definition.grad(*slots, outputs=outputs, infer=infer_fused_grad, operand_ulps=8)
    @passes_on(window_of)
    def kernel_grad(
        xp: Any,
        image: Any,
        weight: Any,
        *others: Any,
        needs: Sequence[bool] = (True, True, False),
        **attrs: Any,
    ) -> tuple[Any, ...]:
        """For images a convolution, for filters a product with the matrix of its windows."""
        window = window_of(image.shape, weight.shape, **attrs)
        made = _spread_grad(xp, image, weight, others[-1], window, needs)
        if not bias:
            return made
        return (*made, bias_grad(others[-1], others[0], window) if needs[2] else None)

    return definition


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
        Sample(
            {"Input": r.normal((2, 3, 2, 3)), "Filter": r.normal((3, 2, 3, 3))},
            {"strides": [1, 1], "paddings": [1, 1], "data_format": "NHWC"},
            deviates=dict.fromkeys(
                ("Input@GRAD", "Filter@GRAD"),
                "has wrong gradients for NHWC with stride, dilation and padding of 1; dpexec gives "
                "the derivatives",
            ),
        ),
        Sample(
            {"Input": r.normal((2, 3, 3, 3)), "Filter": r.normal((3, 2, 3, 3))},
            {"strides": [2, 2], "output_size": [8, 7]},
        ),
        Sample(
            {"Input": r.normal((2, 2, 3, 3)), "Filter": r.normal((2, 2, 3, 2))},
            {"strides": [2, 1], "paddings": [-1, 1, 0, -2]},
        ),
        *_fused_samples(r),
    ]


def _fused_samples(r: SampleRng) -> list[Sample]:
    """Calls as MKL-DNN's passes write them."""

    def call(deviates: Mapping[str, str], grad: tuple[str, ...] = (), **attrs: Any) -> Sample:
        inputs = {"Input": r.normal((2, 4, 3, 3)), "Filter": r.normal((4, 3, 3, 2))}
        inputs["Bias"] = r.normal((3 * attrs.get("groups", 1),))
        return Sample(inputs, attrs, grad=grad, deviates=deviates)

    fast: dict[str, Any] = {"use_mkldnn": True, "is_test": True}
    refused = {"*": "refuses the activation when it runs; dpexec computes it"}
    return [
        call({}, **fast, strides=[2, 1], paddings=[1, 0]),
        call({"*": "refuses groups with use_mkldnn; dpexec accepts them"}, **fast, groups=2),
        call(refused, **fast, fuse_activation="relu"),
        call(refused, **fast, fuse_activation="leaky_relu", fuse_alpha=0.1),
        call(refused, **fast, fuse_activation="relu6", fuse_alpha=2.0),
        call({"Output": PLAIN}, grad=("Input", "Filter")),  # that of Bias has no gradient
    ]


def _depthwise_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample(
            {"Input": r.normal((2, 3, 4, 3)), "Filter": r.normal((3, 1, 3, 2))},
            {"groups": 3, "strides": [2, 1], "paddings": [1, 0]},
        ),
        Sample(
            {"Input": r.normal((1, 2, 3, 3)), "Filter": r.normal((2, 1, 2, 2))},
            {"groups": 2, "dilations": [2, 1]},
        ),
        Sample(
            {"Input": r.normal((2, 2, 2, 3)), "Filter": r.normal((2, 1, 3, 3))},
            {"groups": 2, "strides": [2, 2], "output_size": [6, 8]},
        ),
    ]


def _volume_samples(r: SampleRng) -> list[Sample]:
    return [
        Sample({"Input": r.normal((2, 3, 2, 3, 4)), "Filter": r.normal((3, 2, 2, 3, 2))}),
        Sample(
            {"Input": r.normal((1, 4, 3, 2, 3)), "Filter": r.normal((4, 3, 2, 3, 2))},
            {"strides": [2, 1, 2], "paddings": [1, 0, 1], "dilations": [1, 2, 1], "groups": 2},
        ),
        Sample(
            {"Input": r.normal((2, 2, 3, 2, 3)), "Filter": r.normal((3, 2, 2, 2, 2))},
            {"strides": [2, 2, 3], "data_format": "NHWC", "output_size": [5, 6, 5]},
        ),
    ]


conv2d_transpose = _declare(
    "conv2d_transpose",
    """Spread every element of the images over a window of the output, weighted by a filter.

    ``Filter`` is ``(channels, filters / groups, height, width)``. ``output_size`` chooses among
    the sizes that ``conv2d`` with the same attributes maps to the size of ``Input``. Models that
    were optimized for MKL-DNN add ``Bias``, a number for each filter; ``fuse_activation`` is as for
    ``conv2d``.
    Source: Paddle op ``conv2d_transpose``; Zeiler et al. 2010.
    """,
    _samples,
    _OF_IMAGES,
    bias="Bias?",
    capturable=True,
)

depthwise_conv2d_transpose = _declare(
    "depthwise_conv2d_transpose",
    """``conv2d_transpose`` of each channel by itself.

    Source: Paddle op ``depthwise_conv2d_transpose``.
    """,
    _depthwise_samples,
    _OF_IMAGES,
    bias="Bias?",
)

conv3d_transpose = _declare(
    "conv3d_transpose",
    """``conv2d_transpose`` of volumes, with a depth before the height.

    ``data_format`` is NCHW or NHWC here, too. Source: Paddle op ``conv3d_transpose``.
    """,
    _volume_samples,
    _OF_VOLUMES,
)
