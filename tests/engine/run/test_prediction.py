"""Prediction on several devices: partial feeds, parameters shared with training."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import AllReduce, Reduce, batches, classifier, strategies, train


def predict(net, compiled, feed):
    exe = fluid.Executor(fluid.CPUPlace())
    return exe.run(compiled, feed=feed, fetch_list=[net.prediction])[0]


@pytest.mark.parametrize("rows", [1, 3, 4, 9])
def test_prediction_of_shards_equals_one_device(rows):
    net = classifier()
    run = train(net, batches(1), 1)
    feed = batches(1, rows)[0]
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        one = exe.run(net.test, feed=feed, fetch_list=[net.prediction])[0]
        compiled = fluid.CompiledProgram(net.test).with_data_parallel(places=[fluid.CPUPlace()] * 4)
        np.testing.assert_allclose(predict(net, compiled, feed), one, rtol=1e-6)


def test_list_feed_may_leave_devices_out():
    net = classifier()
    run = train(net, batches(1), 1)
    feed = batches(1, 3)[0]
    with fluid.scope_guard(run.scope):
        compiled = fluid.CompiledProgram(net.test).with_data_parallel(places=[fluid.CPUPlace()] * 3)
        assert predict(net, compiled, [feed, {}]).shape == (3, 3)


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("share", [True, False])
def test_test_program_sees_the_trained_parameters(mode, share):
    net, feeds = classifier(), batches(3)
    run = train(net, feeds[:1], 2, mode)
    with fluid.scope_guard(run.scope):
        exe = fluid.Executor(fluid.CPUPlace())
        build, _ = strategies(mode)
        test = fluid.CompiledProgram(net.test).with_data_parallel(
            build_strategy=build,
            share_vars_from=run.compiled if share else None,
            places=[fluid.CPUPlace()] * 2,
        )
        for feed in feeds:
            exe.run(run.compiled, feed=feed, fetch_list=[])
            expected = exe.run(net.test, feed=feed, fetch_list=[net.prediction])[0]
            np.testing.assert_allclose(predict(net, test, feed), expected, rtol=1e-6)


def test_shared_batch_norm_statistics_are_per_device():
    net = classifier(batch_norm=True)
    run = train(net, batches(4), 2)
    row = batches(1, 1)[0]["x"]
    feed = {"x": np.concatenate([row, row]), "y": np.zeros((2, 1), "int64")}
    with fluid.scope_guard(run.scope):
        test = fluid.CompiledProgram(net.test).with_data_parallel(
            share_vars_from=run.compiled, places=[fluid.CPUPlace()] * 2
        )
        first, second = predict(net, test, feed)
    assert not np.array_equal(first, second)


def test_share_vars_from_is_checked():
    net = classifier()
    run = train(net, batches(1), 2)
    fresh = fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name)
    exe = fluid.Executor(fluid.CPUPlace())
    for source, places, error, message in (
        (fresh, 2, ValueError, "not compiled and executed"),
        (fluid.CompiledProgram(net.main), 2, ValueError, "not data parallel"),
        (run.compiled, 3, fluid.core.EnforceNotMet, "2 devices.*3"),
    ):
        test = fluid.CompiledProgram(net.test).with_data_parallel(
            share_vars_from=source, places=[fluid.CPUPlace()] * places
        )
        with pytest.raises(error, match=message):
            exe.run(test, feed=batches(1)[0], fetch_list=[net.prediction])
