"""Frozen nets of contrib.slim, in all the forms that freezing writes."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.contrib.slim.quantization import QuantizationFreezePass, QuantizationTransformPass
from dpexec.framework import IrGraph
from dpexec.onnx.exporter import model_of
from tests.onnx.exporting.running import run

ACTIVATIONS = ("abs_max", "moving_average_abs_max", "range_abs_max")
WEIGHTS = ("abs_max", "channel_wise_abs_max")


def frozen(activations, weights, bits):
    """A trained, quantized and frozen net, and the name of its prediction."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 1
    with fluid.program_guard(main, startup):
        image = fluid.data("image", [None, 1, 8, 8])
        hidden = fluid.layers.conv2d(image, 4, 3, act="relu")
        hidden = fluid.layers.conv2d(hidden, 4, 3, groups=4, act="relu", use_cudnn=False)
        scores = fluid.layers.fc(hidden, 5, act="softmax")
        test = main.clone(for_test=True)
        fluid.optimizer.SGD(0.01).minimize(fluid.layers.reduce_sum(fluid.layers.log(scores)))
    place, scope = fluid.CPUPlace(), fluid.global_scope()
    exe = fluid.Executor(place)
    exe.run(startup)
    graphs = []
    for program, for_test in ((test, True), (main, False)):
        graph = IrGraph(fluid.core.Graph(program.desc), for_test=for_test)
        QuantizationTransformPass(
            scope, place, activation_quantize_type=activations, weight_quantize_type=weights,
            activation_bits=bits, weight_bits=bits,
        ).apply(graph)  # fmt: skip
        graphs.append(graph)
    rng = np.random.RandomState(0)
    training = graphs[1].to_program()
    for _ in range(3):
        exe.run(training, feed={"image": rng.rand(4, 1, 8, 8).astype("float32")})
    QuantizationFreezePass(
        scope, place, weight_quantize_type=weights, weight_bits=bits, activation_bits=bits
    ).apply(graphs[0])
    return graphs[0].to_program(), scores.name


@pytest.mark.parametrize("bits", [8, 5])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("activations", ACTIVATIONS)
def test_frozen_nets(activations, weights, bits):
    program, name = frozen(activations, weights, bits)
    feed = {"image": np.random.RandomState(1).rand(3, 1, 8, 8).astype("float32")}
    (expected,) = fluid.Executor(fluid.CPUPlace()).run(program, feed=feed, fetch_list=[name])
    model = model_of(program, ["image"], [name])
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("QuantizeLinear") == kinds.count("DequantizeLinear") == 3 * (bits == 8)
    np.testing.assert_allclose(run(model, feed)[name], expected, rtol=1e-3, atol=1e-5)
