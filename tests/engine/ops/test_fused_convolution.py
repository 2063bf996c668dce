"""Convolutions that hold a bias, a sum or an activation, as passes make them, in programs."""

import numpy as np
import pytest

import dpexec as fluid

IMAGES, FILTERS = (2, 3, 5, 4), (4, 3, 3, 2)


def convolution(**attrs):
    """A program of one convolution with a bias, and what it is fed."""
    block = fluid.default_main_program().global_block()
    shapes = {"image": IMAGES, "weight": FILTERS, "bias": (4,), "residual": (2, 4, 3, 3)}
    rng = np.random.default_rng(3)
    feed = {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}
    found = {name: fluid.data(name, list(shape)) for name, shape in shapes.items()}
    for var in found.values():
        var.stop_gradient = False
    names = {"Input": "image", "Filter": "weight", "Bias": "bias", "ResidualData": "residual"}
    inputs = {slot: [found[name]] for slot, name in names.items()}
    out = block.create_var(name="out", dtype="float32")
    block.append_op("conv2d", inputs, {"Output": [out]}, attrs)
    return found, feed, out


def test_what_is_fused_into_a_convolution_is_computed_at_every_step():
    found, feed, out = convolution(fuse_residual_connection=True, fuse_activation="relu")
    executor = fluid.Executor(fluid.CPUPlace())
    first = executor.run(feed=feed, fetch_list=[out])[0]
    assert np.array_equal(executor.run(feed=feed, fetch_list=[out])[0], first)
    block = fluid.default_main_program().global_block()
    alone = block.create_var(name="alone", dtype="float32")
    inputs = {"Input": [found["image"]], "Filter": [found["weight"]]}
    block.append_op("conv2d", inputs, {"Output": [alone]}, {})
    made = executor.run(feed=feed, fetch_list=[alone])[0]
    expected = np.maximum(made + feed["bias"].reshape(4, 1, 1) + feed["residual"], 0)
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)


def test_a_convolution_with_a_bias_learns_it():
    found, feed, out = convolution()
    (grad,) = fluid.gradients(fluid.layers.reduce_sum(out), found["bias"])
    executor = fluid.Executor(fluid.CPUPlace())
    for _ in range(2):
        assert executor.run(feed=feed, fetch_list=[grad])[0].tolist() == [18.0] * 4


def test_the_gradient_of_a_bias_has_no_gradient():
    found, _, out = convolution()
    (d_bias,) = fluid.gradients(fluid.layers.reduce_sum(out), found["bias"])
    with pytest.raises(fluid.core.EnforceNotMet, match="add it with elementwise_add"):
        fluid.gradients(fluid.layers.reduce_sum(d_bias), found["weight"])


def test_a_convolution_with_an_activation_has_no_gradient():
    found, _, out = convolution(fuse_activation="relu")
    with pytest.raises(fluid.core.EnforceNotMet, match="was fused into has no gradient"):
        fluid.gradients(fluid.layers.reduce_sum(out), found["weight"])


def test_quantized_images_are_refused():
    block = fluid.default_main_program().global_block()
    image, weight = fluid.data("i", list(IMAGES), "uint8"), fluid.data("w", list(FILTERS))
    out = block.create_var(name="out")
    with pytest.raises(fluid.core.EnforceNotMet, match="must hold floating point numbers"):
        block.append_op("conv2d", {"Input": [image], "Filter": [weight]}, {"Output": [out]}, {})


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"fuse_activation": "tanh"}, "fuse_activation must be one of"),
        ({"fuse_relu": True}, "set fuse_activation"),
        ({"fuse_brelu": True}, "set fuse_activation to relu6"),
    ],
)
def test_what_cannot_be_fused_is_refused(attrs, message):
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        convolution(**attrs)
