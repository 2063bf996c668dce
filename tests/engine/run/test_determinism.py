"""The same bits on every scheduler, number of threads and granularity, in both modes."""

import dataclasses

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import (
    AllReduce,
    Net,
    Reduce,
    assert_same_bits,
    batches,
    classifier,
    train,
    word_batches,
    words,
)

pytestmark = pytest.mark.filterwarnings("ignore:ExecutionStrategy.num_threads = 1")

OPTIONS = [
    {"scheduler": "sync"},
    {"num_threads": 1},
    {"num_threads": 7},
    {"task_granularity": "op"},
    {"task_granularity": "op", "num_threads": 2},
    {"fuse_all_reduce_ops": False},
    {"enable_sequential_execution": True, "task_granularity": "op"},
    {"num_iteration_per_drop_scope": 5},
    {"mode": Reduce},
    {"mode": Reduce, "task_granularity": "op"},
    {"mode": Reduce, "scheduler": "sync"},
]


@pytest.fixture(scope="module")
def net():
    return classifier(fluid.optimizer.Adam(0.01), dropout=0.3)


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_do_not_change_the_bits(net, devices, options):
    feeds = batches(4, rows=11)
    assert_same_bits(train(net, feeds, devices), train(net, feeds, devices, **options))


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
def test_repeated_run_has_the_same_bits(mode):
    feeds = batches(3)
    one, other = (
        train(classifier(fluid.optimizer.Momentum(0.1, 0.9)), feeds, 3, mode) for _ in "ab"
    )
    assert_same_bits(one, other)


@pytest.mark.parametrize("options", OPTIONS[3:], ids=str)
def test_sparse_gradients_keep_the_bits(options):
    feeds = word_batches(4)
    net = words(fluid.optimizer.Adagrad(0.1))
    assert_same_bits(train(net, feeds, 3), train(net, feeds, 3, **options))


@pytest.mark.parametrize("optimizer", ["SGD", "Momentum", "Adagrad", "Adam"])
def test_updates_of_repeated_rows_that_are_not_in_place_keep_the_bits(optimizer):
    rest = [0.9] if optimizer == "Momentum" else []
    net = words(getattr(fluid.optimizer, optimizer)(0.1, *rest))
    feeds = word_batches(4)
    assert_same_bits(train(net, feeds), train(net, feeds, enable_inplace=False))


def test_one_device_equals_plain_executor():
    net, feeds = classifier(fluid.optimizer.Adam(0.01), dropout=0.2), batches(4)
    parallel = train(net, feeds, 1)
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(net.startup)
        losses = [exe.run(net.main, feed=feed, fetch_list=[net.loss])[0] for feed in feeds]
    assert [float(a[0]) for a in losses] == [float(a[0]) for a in parallel.losses]


def images():
    """What images are multiplied with and divided by has gradients that are sums of planes."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    layers = fluid.layers
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2, 6, 6])
        hidden = layers.tanh(layers.conv2d(x, 3, 3))
        for apply in (layers.elementwise_mul, layers.elementwise_div):
            for shape, axis in (([3], 1), ([1], -1)):
                factor = layers.create_parameter(
                    shape, "float32", default_initializer=fluid.initializer.Uniform(0.5, 1.5)
                )
                hidden = layers.tanh(
                    layers.conv2d(apply(hidden, factor, axis=axis), 3, 3, padding=1)
                )
        loss = layers.mean(hidden)
        fluid.optimizer.SGD(0.5).minimize(loss)
    return Net(main, startup, loss, None, None)


def test_sums_of_images_keep_the_bits_however_tasks_are_cut():
    random = np.random.default_rng(2)
    net, feeds = images(), [{"x": random.random((4, 2, 6, 6), "float32")} for _ in range(2)]
    assert_same_bits(train(net, feeds, 2), train(net, feeds, 2, task_granularity="op"))


def test_program_that_was_written_and_read_draws_the_same_numbers(net):
    read = dataclasses.replace(
        net,
        main=fluid.Program.parse_from_string(net.main.desc.serialize_to_string()),
        startup=fluid.Program.parse_from_string(net.startup.desc.serialize_to_string()),
    )
    for op in read.main.global_block().ops:
        op.outputs = dict(reversed(op.outputs.items()))
    feeds = batches(3, rows=11)
    assert_same_bits(train(net, feeds, 2), train(read, feeds, 2))
