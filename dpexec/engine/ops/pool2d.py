"""``pool2d``, ``pool3d`` and others: the maximum or mean of windows of images and volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpexec.engine.core.dtypes import VarType
from dpexec.engine.ir.opdef import OpDef, Sample, SampleRng, Spec, op, passes_on, require
from dpexec.engine.ops._costs import in_windows
from dpexec.engine.ops._edges import EXTREMA, spoiled
from dpexec.engine.ops._eight_bits import require_float_or_small
from dpexec.engine.ops._pooling import Pooling
from dpexec.engine.ops._windows import channels_of, has_channels_last, image_shape, size_of
from dpexec.engine.ops.quantize import in_range

_LIBRARIES = {"use_cudnn": False}


@passes_on(Pooling.of)
def _infer(
    x: Spec,
    *,
    strides: Sequence[int],
    pooling_type: str,
    data_format: str,
    use_mkldnn: bool = False,
    **windows: Any,
) -> Spec:
    require_float_or_small(x, "X", use_mkldnn)
    rank = len(strides) + 2
    require(x.rank == rank, f"X {x} must have {rank} dimensions")
    require(pooling_type in ("max", "avg"), f"pooling_type {pooling_type} is neither max nor avg")
    pooling = Pooling.of(size_of(x.shape, data_format), strides=strides, **windows)
    channels = channels_of(x.shape, data_format)
    shape = image_shape(x.shape[0], channels, pooling.output, data_format)
    return x.replace(shape=shape)


def _channels_first(images: Any, layout: str) -> Any:
    axes = tuple(range(images.ndim))
    return images.transpose(0, axes[-1], *axes[1:-1]) if has_channels_last(layout) else images


def _channels_back(xp: Any, images: Any, layout: str) -> Any:
    if has_channels_last(layout):
        images = images.transpose(0, *range(2, images.ndim), 1)
    return xp.ascontiguousarray(images)


def _declare(
    name: str,
    doc: str,
    samples: Callable[[SampleRng], list[Sample]],
    attrs: dict[str, Any],
    **facts: Any,
) -> OpDef:
    @passes_on(Pooling.of)
    def kernel(xp: Any, x: Any, *, pooling_type: str, data_format: str, **windows: Any) -> Any:
        whole = x.dtype.kind != "f"
        values = _channels_first(x.astype(np.float32) if whole else x, data_format)
        pooling = Pooling.of(values.shape[2:], **windows)
        pool = pooling.maximum if pooling_type == "max" else pooling.mean
        out = _channels_back(xp, pool(xp, values), data_format)
        return in_range(xp, out, x.dtype) if whole else out

    kernel.__doc__ = doc
    definition = op(
        name,
        inputs="X",
        infer=_infer,
        attrs=attrs,
        operand_ulps=4,
        samples=samples,
        flops=in_windows,
        **facts,
    )(kernel)
    return _with_gradient(definition)


def _with_gradient(definition: OpDef) -> OpDef:
    @definition.grad("X", "Out", "Out@GRAD", dense=True, operand_ulps=4)
    @passes_on(Pooling.of)
    def kernel_grad(
        xp: Any,
        x: Any,
        out: Any,
        d_out: Any,
        *,
        pooling_type: str = "max",
        data_format: str,
        **windows: Any,
    ) -> Any:
        """The gradient of the first maximum of each window, or shared by all its elements."""
        x, out, d_out = (_channels_first(a, data_format) for a in (x, out, d_out))
        pooling = Pooling.of(x.shape[2:], **windows)
        if pooling_type == "max":
            d_x = pooling.maximum_grad(xp, x, out, d_out)
        else:
            d_x = pooling.mean_grad(xp, d_out)
        return _channels_back(xp, d_x, data_format)

    return definition


def _call(kind: str, x: Any, ksize: list[int], strides: Sequence[int] = (), **attrs: Any) -> Sample:
    if strides:
        attrs["strides"] = list(strides)
    return Sample({"X": x}, {"pooling_type": kind, "ksize": ksize, **attrs})


def _of_eight_bits(r: SampleRng, how: str, kind: type[np.integer[Any]]) -> Sample:
    """A call as in a quantized model."""
    ends = np.iinfo(kind)
    x = r.integers(ends.min, ends.max + 1, (2, 3, 6, 5)).astype(kind)
    attrs = {"pooling_type": how, "ksize": [3, 2], "strides": [2, 2], "paddings": [1, 0]}
    return Sample({"X": x}, {**attrs, "use_mkldnn": True}, grad=())


def _samples(r: SampleRng) -> list[Sample]:
    return [
        _call("max", r.distinct((2, 3, 4, 6)), [2, 2], [2, 2]),
        _call(
            "max", r.distinct((2, 2, 7, 6)), [3, 2], [2, 1], paddings=[1, 0, 0, 1], ceil_mode=True
        ),
        _call(
            "avg", r.normal((2, 7, 6, 2)), [3, 3], [2, 2], paddings=[1, 1], data_format="NHWC"
        ),
        _call(
            "avg", r.normal((2, 2, 7, 6)), [3, 3], [2, 2],
            paddings=[1, 1], exclusive=False, ceil_mode=True,
        ),
        _call("avg", r.normal((2, 3, 4, 5)), [2, 2], global_pooling=True),
        Sample(
            {"X": r.distinct((2, 3, 5, 7))},
            {"pooling_type": "max", "adaptive": True, "ksize": [2, 3]},
            deviates={
                "*": (
                    "ignores adaptive in pool2d with max, a call that no layer makes; dpexec "
                    "applies it"
                )
            },
        ),
        _call("avg", r.normal((2, 3, 5, 7)), [2, 3], adaptive=True),
        _call("avg", r.normal((1, 2, 3, 4)), [2, 2], adaptive=True, global_pooling=True),
        _call("max", r.distinct((1, 2, 6, 5)), [2, 2], [1, 2], paddings=[-2, 1, 1, -1]),
        _call("avg", r.normal((1, 2, 6, 5)), [3, 2], [2, 1], paddings=[-1, 0, 1, -2]),
        Sample(
            {"X": np.array([[[[1.0, 2.0], [3.0, 4.0]]]])},
            {
                "pooling_type": "max", "ksize": [2, 2], "strides": [2, 2],
                "padding_algorithm": "VALID",
            },
            expected={"Out": np.array([[[[4.0]]]])},
        ),
        *_samples_with_ties(r),
        *(_of_eight_bits(r, how, kind) for how in ("max", "avg") for kind in (np.int8, np.uint8)),
        _call("max", r.distinct((2, 6, 5, 3)), [2, 2], [2, 2], data_format="NHWC"),
        _call("avg", r.normal((2, 3, 4, 6)), [2, 3], adaptive=True),
        _call("max", r.distinct((2, 3, 5, 2)), [6, 3], [2, 2], exclusive=False),
        _call("avg", r.distinct((2, 3, 5, 2)), [6, 3], [2, 2], exclusive=False),
        _call("avg", r.normal((2, 3, 5, 2)), [7, 3], [2, 3], ceil_mode=True),
    ]  # fmt: skip


def _samples_with_ties(r: SampleRng) -> list[Sample]:
    """Multiples of a half, so that equal maxima are frequent; finite differences fail there."""
    return [
        Sample(
            {"X": np.round(r.normal((2, 2, 7, 6)) * 2) / 2},
            {"pooling_type": kind, "ksize": [3, 3], "strides": [2, 2], **attrs},
            smooth=kind == "avg",
        )
        for kind in ("max", "avg")
        for attrs in (
            {"paddings": [0, 1, 1, 2]},
            {"padding_algorithm": "SAME"},
            {"paddings": [1, 1], "ceil_mode": True},
            {"global_pooling": True, "paddings": [0, 0]},
        )
    ]


def _volume_samples(r: SampleRng) -> list[Sample]:
    return [
        _call("max", r.distinct((2, 2, 4, 4, 6)), [2, 2, 2], [2, 2, 2]),
        _call(
            "avg", r.normal((2, 5, 4, 3, 2)), [3, 2, 2], [2, 1, 1],
            paddings=[1, 0, 1], data_format="NDHWC", exclusive=False,
        ),
        _call(
            "max", r.distinct((1, 2, 5, 4, 3)), [3, 2, 2], [2, 1, 2],
            paddings=[1, 0, 0, 1, 1, 0], ceil_mode=True,
        ),
        _call("avg", r.normal((2, 2, 3, 4, 2)), [2, 2, 2], global_pooling=True),
        _call("avg", r.normal((2, 2, 3, 5, 4)), [2, 3, 2], adaptive=True),
    ]  # fmt: skip


pool2d = _declare(
    "pool2d",
    """The maximum or mean of each window of images ``(batch, channels, height, width)``.

    ``adaptive`` makes ``ksize`` the size of the output. ``exclusive`` leaves the padding out of
    the number that a mean is divided by. Source: Paddle op ``pool2d``.
    """,
    _samples,
    {
        **_LIBRARIES, "use_quantizer": False, "is_test": False, "ksize": [1, 1], "strides": [1, 1],
        "paddings": [0, 0], "data_format": "NCHW",
    },
    capturable=True, precision="gray", quantized="inputs outputs",
)  # fmt: skip

pool3d = _declare(
    "pool3d",
    """The maximum or mean of each window of volumes ``(batch, channels, depth, height, width)``.

    As ``pool2d``, with a depth before the height. Source: Paddle op ``pool3d``.
    """,
    _volume_samples,
    {
        **_LIBRARIES, "ksize": [1, 1, 1], "strides": [1, 1, 1], "paddings": [0, 0, 0],
        "data_format": "NCDHW",
    },
    precision="gray",
)  # fmt: skip


def _infer_indexed(
    x: Spec,
    *,
    ksize: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    global_pooling: bool = False,
    adaptive: bool = False,
) -> tuple[Spec, Spec]:
    rank = len(strides) + 2
    require(x.rank == rank, f"X {x} must have {rank} dimensions")
    pooling = Pooling.of(
        x.shape[2:], ksize=ksize, strides=strides, paddings=paddings,
        global_pooling=global_pooling, adaptive=adaptive,
    )  # fmt: skip
    out = x.replace(shape=(*x.shape[:2], *pooling.output), lod_level=0)
    return out, out.replace(dtype=VarType.INT32)


def _declare_indexed(
    name: str, samples: Callable[[SampleRng], list[Sample]], attrs: dict[str, Any]
) -> OpDef:
    def kernel(
        xp: Any,
        x: Any,
        *,
        ksize: Sequence[int],
        strides: Sequence[int],
        paddings: Sequence[int],
        global_pooling: bool = False,
        adaptive: bool = False,
    ) -> tuple[Any, Any]:
        pooling = Pooling.of(
            x.shape[2:], ksize=ksize, strides=strides, paddings=paddings,
            global_pooling=global_pooling, adaptive=adaptive,
        )  # fmt: skip
        out, places = pooling.places(xp, x)
        return out, places

    kernel.__doc__ = f"""The maximum of each window, and its place counted through the image.

    Source: Paddle op ``{name}``.
    """
    definition = op(
        name,
        inputs="X",
        outputs="Out Mask",
        infer=_infer_indexed,
        attrs=attrs,
        operand_ulps=4,
        samples=samples,
        flops=in_windows,
    )(kernel)

    @definition.grad("X", "Mask", "Out@GRAD", outputs="X@GRAD", dense=True, operand_ulps=4)
    @passes_on(kernel)
    def kernel_grad(xp: Any, x: Any, places: Any, d_out: Any, **windows: Any) -> Any:
        """Gradients added up at the positions of the maxima; GPUs search the windows for these."""
        return Pooling.gathered(xp, x.shape, places, d_out)

    return definition


max_pool2d_with_index = _declare_indexed(
    "max_pool2d_with_index",
    lambda r: [
        Sample(
            {"X": r.distinct((2, 3, 4, 6))},
            {"ksize": [2, 2], "strides": [2, 2]},
        ),
        Sample(
            {"X": r.distinct((2, 2, 5, 6))},
            {"ksize": [3, 2], "strides": [2, 1], "paddings": [1, 0]},
        ),
        Sample({"X": r.distinct((2, 2, 5, 7))}, {"ksize": [2, 3], "adaptive": True}),
        Sample({"X": r.distinct((2, 2, 3, 4))}, {"ksize": [1, 1], "global_pooling": True}),
        Sample(
            {"X": r.distinct((1, 2, 3, 4))},
            {"ksize": [2, 2], "global_pooling": True, "adaptive": True},
        ),
        spoiled(
            Sample({"X": r.distinct((2, 3, 4, 6))}, {"ksize": [2, 2], "strides": [2, 2]}),
            "X",
            np.nan,
            "Out Mask X@GRAD",
            EXTREMA,
        ),
    ],
    {"ksize": [1, 1], "strides": [1, 1], "paddings": [0, 0]},
)

max_pool3d_with_index = _declare_indexed(
    "max_pool3d_with_index",
    lambda r: [
        Sample({"X": r.distinct((2, 1, 4, 2, 6))}, {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
        Sample(
            {"X": r.distinct((1, 2, 4, 5, 3))},
            {"ksize": [3, 2, 2], "strides": [2, 1, 1], "paddings": [1, 0, 1]},
        ),
        Sample({"X": r.distinct((2, 2, 5, 4, 3))}, {"ksize": [2, 3, 2], "adaptive": True}),
        spoiled(
            Sample({"X": r.distinct((2, 1, 4, 2, 6))}, {"ksize": [2, 2, 2], "strides": [2, 2, 2]}),
            "X",
            np.nan,
            "Out Mask X@GRAD",
            EXTREMA,
        ),
    ],
    {"ksize": [1, 1, 1], "strides": [1, 1, 1], "paddings": [0, 0, 0]},
)
