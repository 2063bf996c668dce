"""Programs with 8-bit numbers, which Paddle saves for MKL-DNN, compared with the float32 net."""

import numpy as np
import pytest

import dpexec as fluid

SCALES = {"Scale_in": 40.0, "Scale_weights": [60.0, 80.0, 70.0, 90.0], "Scale_out": 20.0}
RNG = np.random.RandomState(4)
WEIGHTS = {
    "filters": RNG.uniform(-1, 1, (4, 3, 3, 3)).astype("float32"),
    "bias": RNG.uniform(-1, 1, 4).astype("float32"),
    "w": RNG.uniform(-1, 1, (64, 5)).astype("float32"),
}


def quantized():
    """An image net whose middle computes with 8 bits, and its result."""
    block = fluid.default_main_program().global_block()
    x = fluid.data("x", [None, 3, 10, 10])
    made = {name: fluid.data(name, list(value.shape)) for name, value in WEIGHTS.items()}

    def add(type, slots, out, **attrs):
        found = block.create_var(name=f"{type}.out")
        block.append_op(type, slots, {out: [found]}, {"use_mkldnn": True, **attrs})
        return found

    small = add("quantize", {"Input": [x]}, "Output", Scale=40.0, is_negative_input=True)
    slots = {"Input": [small], "Filter": [made["filters"]], "Bias": [made["bias"]]}
    image = add("conv2d", slots, "Output", fuse_activation="relu", **SCALES)
    pooled = add("pool2d", {"X": [image]}, "Out", pooling_type="max", ksize=[2, 2], strides=[2, 2])
    scales = {"Scale_in": 20.0, "Scale_weights": [90.0], "Scale_out": 3.0}
    out = add("fc", {"Input": [pooled], "W": [made["w"]]}, "Out", **scales)
    assert [image.dtype, pooled.dtype, out.dtype] == [
        fluid.core.VarDesc.VarType.UINT8,
        fluid.core.VarDesc.VarType.UINT8,
        fluid.core.VarDesc.VarType.INT8,
    ]
    return add("dequantize", {"Input": [out]}, "Output", Scale=3.0)


def plain(x):
    """What the net stands for, with floating point numbers."""
    image = fluid.layers.data("y", [3, 10, 10])
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="plain")
    slots = {"Input": [image], "Filter": ["filters"], "Bias": ["bias"]}
    block.append_op("conv2d", slots, {"Output": [out]}, {"fuse_activation": "relu"})
    pooled = fluid.layers.pool2d(out, 2, "max", 2)
    return fluid.layers.matmul(fluid.layers.flatten(pooled), block.var("w")), {"y": x}


@pytest.mark.parametrize("native", [True, False])
def test_a_quantized_net_gives_about_what_the_net_gives(native):
    x = RNG.uniform(-1, 1, (6, 3, 10, 10)).astype("float32")
    out, (expected, feed) = quantized(), plain(x)
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    program = fluid.CompiledProgram(fluid.default_main_program())
    program.with_data_parallel(build_strategy=strategy, places=fluid.cpu_places(1))
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": x, **feed, **WEIGHTS}
    found, wanted = exe.run(program, feed=feed, fetch_list=[out, expected])
    assert np.abs(wanted).max() > 5
    np.testing.assert_allclose(found, wanted, atol=0.6)  # whole numbers times a third, and more


def test_images_of_eight_bits_need_the_library_that_takes_them():
    image = fluid.data("x", [None, 3, 10, 10], "int8")
    block = fluid.default_main_program().global_block()
    out = block.create_var(name="o")
    attrs = {"ksize": [2, 2], "pooling_type": "max"}
    with pytest.raises(fluid.core.EnforceNotMet, match="int8 or uint8 where use_mkldnn is set"):
        block.append_op("pool2d", {"X": [image]}, {"Out": [out]}, attrs)


def test_scales_are_one_or_one_for_each_filter():
    block = fluid.default_main_program().global_block()
    image = fluid.data("x", [None, 3, 10, 10], "uint8")
    slots = {"Input": [image], "Filter": [fluid.data("filters", [4, 3, 3, 3])]}
    attrs = {"use_mkldnn": True, "Scale_weights": [1.0, 2.0]}
    with pytest.raises(fluid.core.EnforceNotMet, match="must hold 1 number or 4, but has 2"):
        block.append_op("conv2d", slots, {"Output": [block.create_var(name="o")]}, attrs)
