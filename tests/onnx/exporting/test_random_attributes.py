"""Random combinations of attributes, beyond the samples of the operators."""

import itertools

import numpy as np
import pytest

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.ir.opdef import Sample
from tests.onnx.exporting.test_samples import compare

COUNT = 12


def pick(rng, *values):
    return values[rng.integers(len(values))]


def images(rng, last=False, channels=4):
    size = rng.integers(5, 10, 2).tolist()
    return rng.normal(size=(2, *size, channels) if last else (2, channels, *size))


def convolution(rng):
    last, groups = bool(rng.integers(2)), pick(rng, 1, 2, 4)
    kernel = rng.integers(1, 4, 2).tolist()
    return Sample(
        {"Input": images(rng, last), "Filter": rng.normal(size=(4, 4 // groups, *kernel))},
        {
            "strides": rng.integers(1, 4, 2).tolist(), "dilations": rng.integers(1, 3, 2).tolist(),
            "paddings": rng.integers(0, 3, pick(rng, 2, 4)).tolist(), "groups": groups,
            "padding_algorithm": pick(rng, "EXPLICIT", "EXPLICIT", "SAME", "VALID"),
            "data_format": "NHWC" if last else "NCHW",
        },
    )  # fmt: skip


def transposed_convolution(rng):
    made = convolution(rng)
    groups = made.attrs["groups"]
    filters = rng.normal(size=(4, 4 // groups, *made.inputs["Filter"].shape[2:]))
    return Sample({**made.inputs, "Filter": filters}, made.attrs)


def pooling(rng):
    last = bool(rng.integers(2))
    return Sample(
        {"X": images(rng, last)},
        {
            "pooling_type": pick(rng, "max", "avg"), "ksize": rng.integers(2, 4, 2).tolist(),
            "strides": rng.integers(1, 4, 2).tolist(), "paddings": rng.integers(0, 2, 2).tolist(),
            "ceil_mode": bool(rng.integers(2)), "exclusive": bool(rng.integers(2)),
            "global_pooling": not rng.integers(5), "adaptive": not rng.integers(4),
            "padding_algorithm": pick(rng, "EXPLICIT", "EXPLICIT", "SAME", "VALID"),
            "data_format": "NHWC" if last else "NCHW",
        },
    )  # fmt: skip


def resizing(kind):
    def make(rng):
        last = bool(rng.integers(2))
        given = {"out_h": int(rng.integers(1, 15)), "out_w": int(rng.integers(1, 15))}
        given = pick(rng, given, {"scale": float(pick(rng, 0.5, 1.5, 2.0, 3.0))})
        return Sample(
            {"X": images(rng, last)},
            {
                **given, "interp_method": kind, "align_corners": bool(rng.integers(2)),
                "align_mode": int(rng.integers(2)), "data_layout": "NHWC" if last else "NCHW",
            },
        )  # fmt: skip

    return make


def reduction(rng):
    rank = int(rng.integers(1, 5))
    axes = rng.permutation(rank)[: rng.integers(1, rank + 1)] - rank * int(rng.integers(2))
    return Sample(
        {"X": rng.normal(size=rng.integers(1, 4, rank))},
        {
            "dim": axes.tolist(), "keep_dim": bool(rng.integers(2)),
            "reduce_all": not rng.integers(4),
        },
    )  # fmt: skip


def slicing(rng):
    axes = rng.permutation(3)[: rng.integers(1, 4)]
    return Sample(
        {"Input": rng.normal(size=(4, 5, 6))},
        {
            "axes": axes.tolist(), "starts": rng.integers(-5, 3, len(axes)).tolist(),
            "ends": rng.integers(3, 9, len(axes)).tolist(),
            "infer_flags": [1] * len(axes),
        },
    )  # fmt: skip


def striding(rng):
    made = slicing(rng)
    steps = rng.integers(1, 4, len(made.attrs["axes"])).tolist()
    return Sample(made.inputs, {**made.attrs, "strides": steps})


def product(rng):
    turned = {"transpose_X": bool(rng.integers(2)), "transpose_Y": bool(rng.integers(2))}
    stack = pick(rng, (), (2,), (2, 3))
    x, y = (*stack, 3, 4), (*stack, 4, 5)
    x = (*stack, 4, 3) if turned["transpose_X"] else x
    y = (*stack, 5, 4) if turned["transpose_Y"] else y
    inputs = {"X": rng.normal(size=x), "Y": rng.normal(size=y)}
    return Sample(inputs, {**turned, "alpha": float(rng.normal())})


def broadcasting(rng):
    shape = rng.integers(1, 4, 4).tolist()
    axis = int(rng.integers(0, 4))
    small = shape[axis : axis + int(rng.integers(1, 4 - axis + 1))]
    small = [pick(rng, n, 1) for n in small]
    return Sample({"X": rng.normal(size=shape), "Y": rng.normal(size=small)}, {"axis": axis})


MAKERS = {
    "conv2d": convolution,
    "conv2d_transpose": transposed_convolution,
    "pool2d": pooling,
    "bilinear_interp": resizing("bilinear"),
    "nearest_interp": resizing("nearest"),
    "bicubic_interp": resizing("bicubic"),
    "reduce_sum": reduction,
    "reduce_max": reduction,
    "slice": slicing,
    "strided_slice": striding,
    "matmul": product,
    "elementwise_sub": broadcasting,
    "less_than": broadcasting,
}


@pytest.mark.parametrize("type", MAKERS)
def test_random_attributes(type):
    rng, said = np.random.default_rng(len(type)), []
    for number, is_open in itertools.product(range(COUNT), (False, True)):
        sample = MAKERS[type](rng)
        what = f"{type} {dict(sample.attrs)} {[v.shape for v in sample.inputs.values()]}"
        try:
            said.append(compare(type, sample, (13, 17, 22)[number % 3], is_open, what))
        except EnforceNotMet:
            continue  # the operator itself refuses these attributes
    assert said.count(True) > COUNT // 2, f"{type}: {said}"
