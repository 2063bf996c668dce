"""Loops with gradients on devices, schedulers and clusters; their errors and memory."""

import gc
import tracemalloc

import numpy as np
import pytest

import dpexec as fluid
from tests.distributed.clusters import workers
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, sequence_batches, train

layers = fluid.layers


@pytest.fixture(scope="module")
def client():
    with workers(2) as found:
        yield found.client


def recurrent():
    """A recurrent net over words with a dropout in it, and a loop behind it."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 5
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1], "int64", lod_level=1)
        y = fluid.data("y", [None, 1], "int64")
        words = fluid.embedding(x, [12, 8])
        rnn = layers.DynamicRNN()
        with rnn.block():
            word = rnn.step_input(words)
            hidden = rnn.memory(shape=[8])
            new = layers.fc([layers.dropout(word, 0.3), hidden], 8, act="tanh")
            rnn.update_memory(hidden, new)
            rnn.output(new)
        state = layers.sequence_last_step(rnn())
        weight = layers.create_parameter([8, 8], "float32", "again")
        number, end = (layers.fill_constant([1], "int64", value) for value in (0, 3))
        _, state = layers.while_loop(
            lambda i, h: layers.less_than(i, end),
            lambda i, h: [layers.increment(i), layers.tanh(layers.matmul(h, weight)) + h],
            [number, state],
        )
        prediction = layers.fc(state, 3, act="softmax")
        loss = layers.mean(layers.cross_entropy(prediction, y))
        fluid.optimizer.Momentum(0.05, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


SIZES = (9, 4, 12)


def test_modes_and_ways_to_run_give_the_same_bits():
    net, feeds = recurrent(), sequence_batches(SIZES)
    expected = train(net, feeds, 2)
    assert_same_bits(train(net, feeds, 2, Reduce), expected)
    assert_same_bits(train(net, feeds, 2, scheduler="sync"), expected)
    assert_same_bits(train(net, feeds, 2, task_granularity="op"), expected)


def test_one_device_trains_like_two():
    net, feeds = recurrent(), sequence_batches(SIZES)
    assert_same_bits(train(net, feeds, 1, Reduce), train(net, feeds, 1, AllReduce))


@pytest.mark.parametrize(("mode", "collectives"), [(AllReduce, "tasks"), (Reduce, "gang")])
def test_cluster_gives_the_same_bits(client, mode, collectives):
    net, feeds = recurrent(), sequence_batches(SIZES)
    there = train(net, feeds, 2, mode, scheduler=client, collectives=collectives)
    assert_same_bits(there, train(net, feeds, 2, mode))


def looped(body, rounds=3, width=2):
    """The gradient of what a loop makes of ``x``."""
    x = fluid.data("x", [None, width])
    x.stop_gradient = False
    number, end = (layers.fill_constant([1], "int64", value) for value in (0, rounds))
    _, out = layers.while_loop(
        lambda i, h: layers.less_than(i, end),
        lambda i, h: [layers.increment(i), body(h)],
        [number, layers.scale(x, 1.0)],
    )
    return fluid.gradients(layers.mean(out), x)


def test_shapes_may_change_from_round_to_round():
    grad = looped(lambda h: layers.concat([h, layers.scale(h, 3.0)], axis=0))
    (found,) = fluid.Executor(fluid.CPUPlace()).run(
        feed={"x": np.ones((2, 2), "float32")}, fetch_list=grad
    )
    np.testing.assert_allclose(found, np.full((2, 2), 4**3 / 32), rtol=1e-6)


def test_error_in_the_gradient_of_a_round_names_its_operator():
    program = fluid.default_main_program()
    rounds = []

    def fail(*_):
        rounds.append(1)
        if len(rounds) == 2:
            raise ArithmeticError("of the user")
        return np.zeros((2, 2), "float32")

    def passed(h):
        out = program.current_block().create_var(name="passed", shape=[-1, 2], dtype="float32")
        return layers.py_func(np.array, h, out, backward_func=fail)  # the line of the user

    grad = looped(passed)
    feed = {"x": np.ones((2, 2), "float32")}
    message = r"operator py_func(.|\n)*of the user(.|\n)*line of the user"
    with pytest.raises(fluid.core.EnforceNotMet, match=message):
        fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=grad)


@pytest.mark.parametrize("differentiated", [False, True])
def test_rounds_are_freed_without_the_garbage_collector(differentiated):
    grad = looped(lambda h: layers.tanh(layers.scale(h, 2.0)), rounds=10, width=1000)
    if not differentiated:
        grad = []
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((100, 1000), "float32")}
    for _ in range(2):
        exe.run(feed=feed, fetch_list=grad)
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        exe.run(feed=feed, fetch_list=grad)
        assert tracemalloc.get_traced_memory()[0] < 1.5 * feed["x"].nbytes
    finally:
        tracemalloc.stop()
        gc.enable()


def test_rounds_without_gradients_are_not_kept():
    x = fluid.data("x", [None, 1000])
    number, end = (layers.fill_constant([1], "int64", value) for value in (0, 20))
    layers.while_loop(
        lambda i, h: layers.less_than(i, end),
        lambda i, h: [layers.increment(i), layers.scale(h, 2.0)],
        [number, layers.scale(x, 1.0)],
    )
    exe = fluid.Executor(fluid.CPUPlace())
    feed = {"x": np.ones((100, 1000), "float32")}
    exe.run(feed=feed)
    tracemalloc.start()
    try:
        exe.run(feed=feed)
        assert tracemalloc.get_traced_memory()[1] < 8 * feed["x"].nbytes
    finally:
        tracemalloc.stop()


def assert_derivative(build):
    """The gradient of a loss of x is that of finite differences."""
    main = fluid.Program()
    with fluid.program_guard(main), fluid.unique_name.guard():
        x = fluid.data("x", [2, 3])
        x.stop_gradient = False
        loss = build(x)
        (gradient,) = fluid.gradients(loss, x)
    exe = fluid.Executor(fluid.CPUPlace())

    def run(value, wanted):
        return exe.run(main, {"x": value}, [wanted])[0]

    value = np.random.RandomState(0).normal(size=(2, 3)).astype("float32")
    found = run(value, gradient)
    for place in np.ndindex(*value.shape):
        change = np.zeros_like(value)
        change[place] = 1e-2
        slope = (run(value + change, loss) - run(value - change, loss)) / 2e-2
        np.testing.assert_allclose(found[place], slope[0], atol=2e-3)


def test_gradients_through_plain_states_are_derivatives():
    """The real Paddle adds up the gradients of all rounds, and is off by half of them."""

    def build(x):
        end = layers.fill_constant([1], "int64", 3)
        first = [layers.fill_constant([1], "int64", 0), layers.scale(x, 1.0)]
        _, state = layers.while_loop(
            lambda i, state: layers.less_than(i, end),
            lambda i, state: [layers.increment(i), layers.tanh(state + x)],
            first,
        )
        return layers.reduce_sum(state * state)

    assert_derivative(build)


@pytest.mark.parametrize("entries", [[2], [1, 3], None])
def test_gradients_of_any_entry_of_an_array_are_derivatives(entries):
    """Of an array that a loop writes and reads, the real Paddle is right for its last entry."""

    def build(x):
        i, end = layers.zeros([1], "int64"), layers.fill_constant([1], "int64", 3)
        states = layers.array_write(x, i)
        going = layers.less_than(i, end)
        loop = layers.While(going)
        with loop.block():
            state = layers.tanh(layers.array_read(states, i) * 1.5)
            layers.increment(i)
            layers.array_write(state, i, states)
            layers.less_than(i, end, cond=going)
        if entries is None:
            return layers.reduce_sum(layers.tensor_array_to_tensor(states, axis=0)[0])
        numbers = [layers.fill_constant([1], "int64", entry) for entry in entries]
        read = [layers.array_read(states, number) for number in numbers]
        return layers.sums([layers.reduce_sum(layers.square(state)) for state in read])

    assert_derivative(build)
