"""Loops, arrays and rank tables on simulated GPUs give the numbers of CPUs."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.gpu.programs import assert_same_bits, trained
from tests.engine.run.nets import Net, sequence_batches


def dynamic(words):
    rnn = fluid.layers.DynamicRNN()
    with rnn.block():
        word, before = rnn.step_input(words), rnn.memory(shape=[8], value=0.0)
        hidden = fluid.layers.fc([word, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.output(hidden)
    return fluid.layers.sequence_last_step(rnn())


def static(words):
    step = fluid.layers.reshape(fluid.layers.sequence_pool(words, "sum"), [1, -1, 8])
    steps = fluid.layers.concat([step] * 3, axis=0)
    rnn = fluid.layers.StaticRNN()
    with rnn.step():
        word = rnn.step_input(steps)
        before = rnn.memory(shape=[-1, 8], batch_ref=word)
        hidden = fluid.layers.fc([word, before], 8, act="tanh")
        rnn.update_memory(before, hidden)
        rnn.step_output(hidden)
    return fluid.layers.reduce_sum(rnn(), 0)


def branches(words):
    pooled = fluid.layers.reshape(fluid.layers.sequence_pool(words, "sum"), [-1, 8])
    total = fluid.layers.reduce_sum(pooled, 1, keep_dim=True)
    zeros = fluid.layers.fill_constant_batch_size_like(pooled, [-1, 1], "float32", 0.0)
    either = fluid.layers.IfElse(fluid.layers.less_than(total, zeros))
    with either.true_block():
        either.output(fluid.layers.fc(either.input(pooled), 8, act="tanh"))
    with either.false_block():
        either.output(fluid.layers.scale(either.input(pooled), 2.0))
    return either()[0]


def loop(words):
    step, last = (fluid.layers.fill_constant([1], "int64", number) for number in (0, 3))
    array = fluid.layers.array_write(fluid.layers.sequence_pool(words, "sum"), step)
    condition = fluid.layers.less_than(step, last)
    with fluid.layers.While(condition).block():
        hidden = fluid.layers.fc(fluid.layers.array_read(array, step), 8, act="tanh")
        fluid.layers.increment(step, in_place=True)
        fluid.layers.array_write(hidden, step, array)
        fluid.layers.less_than(step, last, cond=condition)
    number = fluid.layers.cast(fluid.layers.array_length(array), "float32")
    return fluid.layers.elementwise_mul(fluid.layers.array_read(array, last), number)


def long_short_term(words):
    hidden, _ = fluid.layers.dynamic_lstm(fluid.layers.fc(words, 28), 28)
    return fluid.layers.sequence_pool(hidden, "max")


def net(layer):
    """Classifies sequences of words."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        y = fluid.data("y", [None, 1], "int64")
        prediction = fluid.layers.fc(layer(fluid.embedding(x, [12, 8])), 3, act="softmax")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


@pytest.mark.parametrize("layer", [dynamic, static, branches, loop, long_short_term])
def test_gpus_compute_what_processors_do(cupy, layer):
    made, feeds = net(layer), sequence_batches([9, 11])
    expected = trained(made, [fluid.CPUPlace()] * 2, feeds=feeds)
    cupy.machine.reads.clear()
    found = trained(made, [fluid.CUDAPlace(0), fluid.CUDAPlace(1)], feeds=feeds)
    assert set(cupy.machine.reads) <= {"event", "get"}  # of fetches, labels and masks; no rounds
    assert np.isfinite(expected[0]).all()
    assert_same_bits(found, expected)
