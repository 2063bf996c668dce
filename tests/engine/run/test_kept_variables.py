"""A test program leaves running statistics as they are: on every device its own.

Paddle 1.8.5 gives each device its own results of the test program, whatever else runs it meanwhile.
"""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.operator import Operator
from tests.engine.run.nets import batches, classifier

DEVICES = [fluid.CPUPlace()] * 2


def predictions(net, between):
    """What two devices predict after every step of training; `between` runs before they do."""
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(net.startup)
    train = fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name, places=DEVICES)
    test = fluid.CompiledProgram(net.test).with_data_parallel(share_vars_from=train, places=DEVICES)
    found = []
    for feed in batches(3):
        exe.run(train, feed=feed)
        between(exe, feed)
        found.append(exe.run(test, feed=feed, fetch_list=[net.prediction.name])[0])
    return found


def test_an_executor_that_tests_changes_no_devices_statistics():
    def alone(exe, feed):
        exe.run(net.test, feed=feed, fetch_list=[net.prediction.name])

    net = classifier(batch_norm=True)
    with fluid.scope_guard(fluid.Scope()):
        expected = predictions(net, lambda exe, feed: None)
    with fluid.scope_guard(fluid.Scope()):
        found = predictions(net, alone)
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_statistics_of_a_frozen_layer_can_be_set_while_it_trains():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        y = fluid.layers.batch_norm(x, use_global_stats=True, moving_mean_name="mean")
        fluid.optimizer.SGD(0.0).minimize(fluid.layers.mean(y))
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((2, 2), "float32")}
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        exe.run(main, feed=feed)
        mean = fluid.global_scope().find_var("mean").get_tensor()
        mean.set(np.full(2, 1, "float32"), fluid.CPUPlace())
        fetched = exe.run(main, feed=feed, fetch_list=[y, "mean"])
    assert [value.tolist() for value in fetched] == [[[0.0, 0.0]] * 2, [1.0, 1.0]]


@pytest.mark.parametrize(
    ("attrs", "kept"),
    [
        ({}, False),
        ({"is_test": True}, True),
        ({"is_test": True, "trainable_statistics": True}, False),
        ({"use_global_stats": True}, True),
    ],
)
@pytest.mark.parametrize("kind", ["batch_norm", "inplace_abn"])
def test_moving_statistics_are_kept_where_they_are_used(kind, attrs, kept):
    block = fluid.Program().global_block()
    names = {"Mean": ["mean"], "Variance": ["variance"]}
    op = Operator(block, kind, names, {"MeanOut": ["mean"], "VarianceOut": ["variance"]}, attrs)
    assert op.definition.keeps(op) is kept
