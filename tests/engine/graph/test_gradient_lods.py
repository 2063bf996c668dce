"""Which gradients are fetched with sequences, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers
LOD = [[0, 2, 5]]
OUTPUTS = {
    "own": (lambda x: layers.sequence_pool(x, "sum"), {"x": LOD}),
    "arrives": (lambda x: layers.relu(x), {"x": LOD}),
    "none": (lambda x: layers.softmax(x), {"x": []}),
    "none arrives": (lambda x: layers.softmax(layers.exp(x)), {"x": [], "exp_0.tmp_0": []}),
    "own again": (lambda x: layers.softmax(layers.concat([x, x], 1)), {"x": LOD}),
    "sum, first without": (lambda x: layers.sums([layers.exp(x), layers.softmax(x)]), {"x": []}),
    "sum, first with": (lambda x: layers.sums([layers.softmax(x), layers.exp(x)]), {"x": LOD}),
    "matches": (
        lambda x: fluid.contrib.match_matrix_tensor(layers.exp(x), layers.sin(x), 2)[0],
        {"exp_0.tmp_0": LOD, "sin_0.tmp_0": LOD},
    ),
    "second operand": (
        lambda x: layers.softmax(layers.elementwise_add(layers.exp(x), layers.sin(x))),
        {"exp_0.tmp_0": [], "sin_0.tmp_0": LOD},
    ),
}


def step(output, names, return_numpy):
    x = fluid.data("x", [None, 3], lod_level=1)
    x.stop_gradient = False
    fluid.backward.append_backward(layers.mean(output(x)))
    fed = fluid.create_lod_tensor(np.ones((5, 3), "float32"), [[2, 3]], fluid.CPUPlace())
    fetch = [f"{name}@GRAD" for name in names]
    exe = fluid.Executor(fluid.CPUPlace())
    if fluid.default_startup_program().global_block().ops:
        exe.run(fluid.default_startup_program())
    return exe.run(feed={"x": fed}, fetch_list=fetch, return_numpy=return_numpy)


@pytest.mark.parametrize("case", OUTPUTS)
def test_gradients_show_the_sequences_that_they_show_in_the_original(case):
    output, lods = OUTPUTS[case]
    found = step(output, lods, return_numpy=False)
    assert [gradient.lod() for gradient in found] == list(lods.values())


def test_gradients_without_sequences_are_fetched_as_arrays():
    (gradient,) = step(layers.softmax, ["x"], return_numpy=True)
    assert isinstance(gradient, np.ndarray) and gradient.shape == (5, 3)


def test_gradients_with_sequences_are_not():
    with pytest.raises(RuntimeError, match="hold LoD"):
        step(layers.relu, ["x"], return_numpy=True)
