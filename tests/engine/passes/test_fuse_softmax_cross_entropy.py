"""The pass that fuses softmax and cross entropy, forward and backward."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.graph.operators import Operators
from dpexec.engine.passes import FuseSoftmaxCrossEntropy, PassManager
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, train

ON = {"fuse_softmax_with_cross_entropy": True}


def types(program, kept=()):
    manager = PassManager([], [FuseSoftmaxCrossEntropy()])
    operators = manager.rewrite(Operators(program, kept))
    return [op.type for op in operators.ops], manager.records[0]


def test_both_directions_are_fused():
    found, record = types(classifier().main)
    assert record.ops_before - record.ops_after == 2
    assert {"softmax", "softmax_grad", "cross_entropy2", "cross_entropy_grad2"}.isdisjoint(found)
    assert found.count("softmax_with_cross_entropy") == 1
    assert found.index("softmax_with_cross_entropy_grad") > found.index("mean_grad")


def test_softmax_stays_for_others():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        shares = fluid.layers.softmax(x)
        fluid.layers.accuracy(shares, y)
        fluid.layers.cross_entropy(shares, y)
    found, _ = types(main)
    assert found[0] == "softmax_with_cross_entropy" and {"top_k", "accuracy"} <= set(found)


def test_second_gradient_of_the_softmax_keeps_it():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1], "int64")
        shares = fluid.layers.fc(x, 4, act="softmax")
        loss = fluid.layers.cross_entropy(shares, y) + fluid.layers.reduce_sum(shares * shares)
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(loss))
    assert not types(main)[1].modified


def test_soft_labels_and_other_axes_stay():
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [3, 4]), fluid.data("y", [3, 4])
        fluid.layers.cross_entropy(fluid.layers.softmax(x), y, soft_label=True)
        label = fluid.data("label", [3, 1], "int64")
        fluid.layers.cross_entropy(fluid.layers.softmax(x, axis=0), label)
    assert not types(main)[1].modified


@pytest.mark.parametrize("native", [True, False])
def test_losses_of_labels_without_an_axis_have_none(native):
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [None], "int64")
        x.stop_gradient = False
        loss = fluid.layers.cross_entropy(fluid.layers.softmax(x), y)
        (slope,) = fluid.gradients(loss, x)
    assert loss.shape == (-1,)
    strategy = fluid.BuildStrategy()
    strategy.native_kernels = native
    compiled = fluid.CompiledProgram(main, build_strategy=strategy)
    feed = {"x": np.eye(3, 4, dtype="float32"), "y": np.array([0, 0, 3])}
    losses, slopes = fluid.Executor(fluid.CPUPlace()).run(compiled, feed, [loss, slope])
    shares = np.exp(feed["x"]) / (3 + np.e)
    hits = np.eye(4)[feed["y"]]
    np.testing.assert_allclose(losses, -np.log((shares * hits).sum(1)), rtol=1e-6)
    np.testing.assert_allclose(slopes, shares - hits, rtol=1e-5)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("mode", "devices"), [(AllReduce, 1), (AllReduce, 2), (Reduce, 2)])
def test_losses_stay_within_rounding(mode, devices, native):
    options = {"native_kernels": native}
    plain, found = (
        train(classifier(fluid.optimizer.Adam(0.01)), batches(4), devices, mode, **options, **on)
        for on in ({}, ON)
    )
    assert np.array_equal(plain.losses[0], found.losses[0])
    np.testing.assert_allclose(found.losses, plain.losses, rtol=2e-6)
    for name, value in plain.state.items():
        np.testing.assert_allclose(found.state[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_gradient_is_a_number_where_the_softmax_is_zero():
    net = classifier(sizes=(8, 3))
    feed = {"x": np.full((2, 8), 300.0, "float32"), "y": np.array([[0], [1]])}
    assert np.isfinite(train(net, [feed] * 2, native_kernels=False, **ON).state["fc_0.w_0"]).all()
