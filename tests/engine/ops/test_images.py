"""Convolutions and pooling with any options, compared with plain loops; refused shapes."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpexec.engine.ir import opdef
from dpexec.engine.ir.opdef import InvalidOp, Spec
from dpexec.engine.ops import _convolution
from tests.engine.ops import calls

assert calls  # registers the operators

SIZES = st.tuples(st.integers(5, 8), st.integers(5, 8))
STEPS = st.lists(st.integers(1, 3), min_size=2, max_size=2)
PADS = st.lists(st.integers(0, 1), min_size=4, max_size=4)


def images(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def call(type, *inputs, **attrs):
    definition = opdef.get(type)
    return definition(np, *inputs, **{**definition.kernel_attrs({}), **attrs})


def pooled_by_loops(x, kind, ksize, strides, pads, exclusive):
    """One window after the other."""
    height, width = x.shape[2:]
    sizes = (height + sum(pads[:2]), width + sum(pads[2:]))
    rows, columns = [(n - k) // s + 1 for n, k, s in zip(sizes, ksize, strides, strict=True)]
    out = np.empty((*x.shape[:2], rows, columns), np.float32)
    for a, b in itertools.product(range(rows), range(columns)):
        top, left = a * strides[0] - pads[0], b * strides[1] - pads[2]
        window = x[:, :, max(top, 0) : top + ksize[0], max(left, 0) : left + ksize[1]]
        if kind == "max":
            out[:, :, a, b] = window.max((2, 3))
        else:
            count = window[0, 0].size if exclusive else ksize[0] * ksize[1]
            out[:, :, a, b] = window.sum((2, 3)) / count
    return out


@settings(max_examples=60)
@given(SIZES, STEPS, STEPS, PADS, st.sampled_from(["max", "avg"]), st.booleans())
def test_pool2d_equals_plain_loops(size, ksize, strides, pads, kind, exclusive):
    ksize = [k + 1 for k in ksize]
    x = images(2, 2, *size)
    made = call(
        "pool2d", x, pooling_type=kind, ksize=ksize, strides=strides, paddings=pads,
        exclusive=exclusive,
    )  # fmt: skip
    expected = pooled_by_loops(x, kind, ksize, strides, pads, exclusive)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=40)
@given(SIZES, STEPS, STEPS, PADS, STEPS)
def test_conv2d_equals_plain_loops(size, kernel, strides, pads, dilations):
    x, weight = images(2, 3, *size), images(4, 3, *kernel)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    padded = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    if any(r > n for r, n in zip(reach, padded.shape[2:], strict=True)):
        return
    made = call("conv2d", x, weight, strides=strides, paddings=pads, dilations=dilations)
    for a, b in itertools.product(range(made.shape[2]), range(made.shape[3])):
        top, left = a * strides[0], b * strides[1]
        window = padded[
            :, :, top : top + reach[0] : dilations[0], left : left + reach[1] : dilations[1]
        ]
        expected = np.einsum("ncij,fcij->nf", window, weight)
        np.testing.assert_allclose(made[:, :, a, b], expected, rtol=1e-4, atol=1e-4)


def test_convolution_in_pieces_equals_that_in_one(monkeypatch):
    x, weight = images(5, 2, 6, 6), images(3, 2, 3, 3)
    flow = images(5, 3, 4, 4)
    whole = [call("conv2d", x, weight), *call("conv2d_grad", x, weight, None, flow)[:2]]
    monkeypatch.setattr(_convolution, "MATRIX_LIMIT", 2 * 18 * 16)
    pieces = [call("conv2d", x, weight), *call("conv2d_grad", x, weight, None, flow)[:2]]
    for a, b in zip(whole, pieces, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("type", ["conv2d_grad", "conv2d_transpose_grad"])
def test_convolution_makes_only_the_gradients_needed(type):
    x, weight = images(2, 3, 6, 6), images(3, 3, 3, 3)
    flow = images(2, 3, 4, 4) if type == "conv2d_grad" else images(2, 3, 8, 8)
    both = call(type, x, weight, None, flow, needs=(True, True, False))
    first = call(type, x, weight, None, flow, needs=(True, False, False))
    second = call(type, x, weight, None, flow, needs=(False, True, False))
    assert first[1] is None
    assert second[0] is None
    np.testing.assert_array_equal(first[0], both[0])
    np.testing.assert_array_equal(second[1], both[1])


def infer(type, *shapes, **attrs):
    definition = opdef.get(type)
    names = [slot.name for slot in definition.inputs]
    specs = {name: [Spec(shape)] for name, shape in zip(names, shapes, strict=False)}
    return definition.infer_specs(specs, attrs)


@pytest.mark.parametrize(
    ("type", "shapes", "attrs", "message"),
    [
        ("conv2d", [(2, 3, 5, 5), (4, 2, 3, 3)], {}, "does not fit Input"),
        ("conv2d", [(2, 4, 5, 5), (3, 2, 3, 3)], {"groups": 2}, "does not fit Input"),
        ("conv2d", [(2, 3, 2, 5), (4, 3, 3, 3)], {}, "reaches over 3 elements"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"fuse_relu": True}, "set fuse_activation"),
        ("conv2d", [(3, 5, 5), (4, 3, 3, 3)], {}, "must have 4 dimensions"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"data_format": "CHWN"}, "NCHW or NHWC"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"paddings": [1, 1, 1]}, "2 or 4 numbers"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"padding_algorithm": "FULL"}, "SAME or VALID"),
        ("conv2d", [(2, 3, 5, 5), (4, 3, 3, 3)], {"strides": [0, 1]}, "2 positive numbers"),
        (
            "conv2d_transpose",
            [(2, 3, 4, 4), (3, 2, 3, 3)],
            {"strides": [2, 2], "output_size": [11, 9]},
            "output_size",
        ),
        ("pool2d", [(2, 3, 5, 5)], {"pooling_type": "min", "ksize": [2, 2]}, "neither max nor"),
        ("pool2d", [(2, 3, 5, 5)], {"pooling_type": "max", "ksize": [7, 2]}, "larger than"),
        ("batch_norm", [(2, 3, 5), (4,), (3,), (3,), (3,)], {}, "Scale .* one element per channel"),
        ("batch_norm", [(3,), (3,), (3,), (3,), (3,)], {}, "2 to 5 dimensions"),
        ("layer_norm", [(2, 6), (5,)], {}, "the 6 elements that are normalised together"),
        ("layer_norm", [(2, 6)], {"begin_norm_axis": 2}, "begin_norm_axis 2"),
    ],
)
def test_what_does_not_fit_is_refused(type, shapes, attrs, message):
    with pytest.raises(InvalidOp, match=message):
        infer(type, *shapes, **attrs)


def test_batch_norm_gives_new_arrays_for_the_moving_statistics():
    mean, variance = np.zeros(3, np.float32), np.ones(3, np.float32)
    inputs = (images(4, 3, 2, 2), variance, mean, mean, variance)
    for attrs in ({}, {"is_test": True}, {"use_global_stats": True}):
        _, mean_out, variance_out, saved_mean, _, _ = call("batch_norm", *inputs, **attrs)
        for made, old in ((mean_out, mean), (variance_out, variance), (saved_mean, mean)):
            assert not np.shares_memory(made, old)
    assert not mean.any()


def test_batch_norm_of_a_large_mean_keeps_its_precision():
    x = images(64, 1, 8, 8) + 1000
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    y = call("batch_norm", x, one, zero, zero, one)[0]
    exact = (x - x.mean(dtype=np.float64)) / x.std(dtype=np.float64)
    np.testing.assert_allclose(y, exact, atol=2e-3)


@pytest.mark.parametrize(
    ("method", "attrs", "expected", "gradient"),
    [
        (
            "bicubic",
            {"align_corners": True},
            [1.7859893156893039, 11.180339887498949, 29.265683948636102],
            [2.9443359375, 4.580078125],
        ),
        (
            "bicubic",
            {"align_corners": False},
            [0.7211219057117828, 10.835938185412592, 30.838867813934456],
            [2.9089079261808637, 3.0724894409435417],
        ),
        (
            "bilinear",
            {"align_corners": False, "align_mode": 0},
            [1.9142137803385937, 10.953172860999327, 29.311388851919812],
            [2.857142718349186, 3.214285062892124],
        ),
        (
            "bilinear",
            {"align_corners": False, "align_mode": 1},
            [2.3060196239221344, 14.878249173653225, 30.301983916720324],
            [2.3999997326305973, 2.742857006617953],
        ),
    ],
)
def test_resized_images_in_double_precision_are_those_of_paddle(method, attrs, expected, gradient):
    """Paddle rounds some positions to single precision; so they, too, must be the same."""
    x = (np.arange(12.0) ** 1.5).reshape(1, 1, 3, 4)
    attrs = {"out_h": 5, "out_w": 7, "interp_method": method, **attrs}
    resized = calls.SampleCall(f"{method}_interp", opdef.Sample({"X": x}, attrs), np.float64)
    values = resized.forward()
    np.testing.assert_allclose(values["out_Out_0"].ravel()[[3, 16, 31]], expected, rtol=1e-14)
    grads, _ = resized.backward(values, {"out_Out_0": np.ones((1, 1, 5, 7))}, ["X_0"])
    np.testing.assert_allclose(grads["X_0"].ravel()[[1, 6]], gradient, rtol=1e-14)
