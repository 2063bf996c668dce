"""``Program.clone(for_test=True)`` keeps the operators that Paddle 1.8.5 keeps."""

import numpy as np

import dpexec as fluid

layers = fluid.layers
FORWARD = ["mul", "elementwise_add", "mean"]


def net():
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    hidden = layers.fc(x, 3)
    return x, hidden, layers.mean(hidden)


def types():
    """Of the operators that a clone for testing has."""
    return [op.type for op in fluid.default_main_program().clone(for_test=True).block(0).ops]


def test_schedule_goes_with_the_training():
    _, _, loss = net()
    rate = layers.piecewise_decay([2, 4], [0.1, 0.05, 0.02])
    fluid.optimizer.SGD(rate).minimize(loss)
    test = fluid.default_main_program().clone(for_test=True)
    assert [op.type for op in test.block(0).ops] == FORWARD and test.num_blocks == 1
    assert not {"@LR_DECAY_COUNTER@", "learning_rate"} & test.block(0).vars.keys()


def test_testing_between_steps_leaves_the_schedule_where_it_was():
    _, _, loss = net()
    rate = layers.exponential_decay(0.5, 1, 0.5)
    fluid.optimizer.SGD(rate).minimize(loss)
    main = fluid.default_main_program()
    test = main.clone(for_test=True)
    exe, feed = fluid.Executor(fluid.CPUPlace()), {"x": np.ones((2, 4), "float32")}
    exe.run(fluid.default_startup_program())
    for expected in (0.5, 0.25, 0.125):
        assert exe.run(main, feed=feed, fetch_list=[rate])[0].tolist() == [expected]
        exe.run(test, feed=feed, fetch_list=[loss])


def test_what_comes_after_the_training_stays():
    _, hidden, loss = net()
    fluid.optimizer.SGD(0.1).minimize(loss)
    layers.softmax(hidden)
    assert types() == [*FORWARD, "softmax"]


def test_program_that_does_not_train_keeps_gradients_and_schedules():
    x, hidden, _ = net()
    layers.create_global_var([1], 0.0, "float32", persistable=True, name="unused")
    rate = layers.exponential_decay(0.5, 1, 0.5)
    (gradient,) = fluid.gradients([hidden], [x])
    test = fluid.default_main_program().clone(for_test=True)
    assert types() == [op.type for op in fluid.default_main_program().block(0).ops]
    assert {gradient.name, rate.name, "unused"} <= test.block(0).vars.keys()


def test_operators_of_tests_are_in_test_mode():
    layers.dropout(fluid.data("x", [None, 4]), 0.5)
    (op,) = fluid.default_main_program().clone(for_test=True).block(0).ops
    assert op.attr("is_test") and not fluid.default_main_program().block(0).ops[0].attr("is_test")
