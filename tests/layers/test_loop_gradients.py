"""Gradients of loops, compared with finite differences; some of Paddle's are wrong."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.ir.verify import verify

layers = fluid.layers

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def number(value):
    return layers.fill_constant([1], "int64", value)


def repeat(times, body, *loop_vars):
    """The loop variables after ``body(i, *loop_vars)`` ran so often."""
    count, end = number(0), number(times)

    def counted(i, *values):
        made = body(i, *values)
        return [layers.increment(i), *(made if isinstance(made, list) else [made])]

    return layers.while_loop(lambda i, *_: i < end, counted, [count, *loop_vars])[1:]


@case
def hidden_state(x, w):
    (h,) = repeat(3, lambda i, h: layers.tanh(layers.matmul(h, w)), x * 2.0)
    return h


@case
def array_of_states(x, w):
    def body(i, states):
        h = layers.tanh(layers.matmul(layers.array_read(states, i), w))
        return layers.array_write(h, i + 1, array=states)

    (states,) = repeat(3, body, layers.array_write(layers.scale(x, 2.0), number(0)))
    return layers.array_read(states, number(3)) + layers.array_read(states, number(1))


@case
def no_rounds(x, w):
    (h,) = repeat(0, lambda i, h: layers.matmul(h, w), x * 2.0)
    return h + layers.matmul(x, w)


@case
def state_that_only_another_one_reads(x, w):
    start = layers.fill_constant([2, 3], "float64", 0.0)
    start.stop_gradient = False
    _, total = repeat(
        3, lambda i, h, s: [layers.matmul(h, w), s + h * h], layers.scale(x, 1.0), start
    )
    return total


@case
def written_anew_in_every_round(x, w):
    made = layers.fill_constant([2, 3], "float64", 0.0)
    made.stop_gradient = False
    h = layers.scale(x, 1.0)
    i, end = number(0), number(2)
    going = layers.less_than(i, end)
    with layers.While(going).block():
        layers.assign(layers.matmul(h, w), h)
        layers.assign(layers.tanh(h) * x, made)
        layers.increment(i)
        layers.less_than(i, end, cond=going)
    return made + layers.assign(made)


@case
def array_written_inside_and_read_inside_and_outside(x, w):
    states = layers.array_write(layers.scale(x, 1.0), number(0))
    i, end = number(0), number(3)
    going = layers.less_than(i, end)
    with layers.While(going).block():
        h = layers.tanh(layers.matmul(layers.array_read(states, i), w))
        layers.increment(i)
        layers.array_write(h, i, states)
        layers.less_than(i, end, cond=going)
    found = [layers.array_read(states, number(k)) * (k + 1.0) for k in range(4)]
    return layers.sums([*found, layers.array_read(states, number(2))])


@case
def every_round_reads_the_same_entry(x, w):
    inputs = layers.array_write(layers.matmul(x, w), number(0))
    first = number(0)
    (h,) = repeat(3, lambda i, h: h * 0.5 + layers.array_read(inputs, first), x * 1.0)
    return h


@case
def counter_without_increment(x, w):
    inputs = layers.array_write(x * 1.0, number(0))
    layers.array_write(x * x, number(1), inputs)
    start, end = number(0), number(2)
    _, h = layers.while_loop(
        lambda i, h: i < end,
        lambda i, h: [i + number(1), layers.tanh(h) + layers.array_read(inputs, i)],
        [start, layers.matmul(x, w)],
    )
    return h


@case
def loop_in_a_loop(x, w):
    def outer(i, h):
        (inner,) = repeat(2, lambda j, g: layers.tanh(layers.matmul(g, w)) + h, h * 0.5)
        return inner * h

    (h,) = repeat(3, outer, x * 1.0)
    return h


@case
def branch_in_a_loop(x, w):
    def body(i, h):
        return layers.cond(
            i < number(1), lambda: layers.tanh(layers.matmul(h, w)), lambda: h * h * 0.3
        )

    (h,) = repeat(3, body, x * 1.0)
    return h


@case
def loop_in_a_branch(x, w):
    h = layers.scale(x, 1.0)
    positive = layers.reduce_sum(x) > -100.0

    def looped():
        return repeat(2, lambda i, g: layers.tanh(layers.matmul(g, w)), h * 1.0)[0]

    return layers.cond(positive, looped, lambda: h * 2.0)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_finite_differences(name):
    main = fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, fluid.Program()):
        x, w = (fluid.data(n, shape, "float64") for n, shape in (("x", [2, 3]), ("w", [3, 3])))
        x.stop_gradient = w.stop_gradient = False
        loss = layers.reduce_sum(CASES[name](x, w))
        grads = fluid.gradients(loss, [x, w])
    verify(main)
    rng = np.random.default_rng(3)
    values = {"x": rng.uniform(-1, 1, (2, 3)), "w": rng.uniform(-1, 1, (3, 3))}
    executor = fluid.Executor(fluid.CPUPlace())

    def loss_at(distance):
        feed = {n: v + distance * directions[n] for n, v in values.items()}
        return executor.run(main, feed=feed, fetch_list=[loss])[0].item()

    found = executor.run(main, feed=values, fetch_list=grads)
    directions = {n: rng.standard_normal(v.shape) for n, v in values.items()}
    by_operators = sum((g * directions[n]).sum() for n, g in zip(values, found, strict=True))
    assert by_operators == pytest.approx((loss_at(1e-5) - loss_at(-1e-5)) / 2e-5, rel=1e-7)


def test_two_backward_passes_through_one_loop():
    with fluid.unique_name.guard(), fluid.program_guard(fluid.Program(), fluid.Program()):
        x, w = (fluid.data(n, [3, 3], "float64") for n in ("x", "w"))
        x.stop_gradient = w.stop_gradient = False
        inputs = layers.array_write(layers.matmul(x, w), number(0))
        zero = number(0)
        (h,) = repeat(3, lambda i, h: layers.tanh(h) + layers.array_read(inputs, zero), x * 1.0)
        first = fluid.gradients(layers.reduce_sum(h), [x, w])
        second = fluid.gradients(layers.reduce_sum(h) * 2.0, [x, w])
        rng = np.random.default_rng(3)
        feed = {name: rng.uniform(-1, 1, (3, 3)) for name in ("x", "w")}
        fetch = [*first, *second, inputs.name + "@GRAD"]  # which keeps the array of the first
        found = fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=fetch)
    for once, twice in zip(found[:2], found[2:4], strict=True):
        np.testing.assert_allclose(twice, 2 * once, rtol=1e-12)


def test_a_loop_whose_condition_nothing_writes_is_refused_and_leaves_no_trace():
    n = fluid.layers.fill_constant([1], "int64", 0)
    loop = fluid.layers.While(
        fluid.layers.less_than(n, fluid.layers.fill_constant([1], "int64", 3))
    )
    program = fluid.default_main_program()
    before = str(program)
    never = pytest.raises(fluid.core.EnforceNotMet, match=r"writes its condition .* never end")
    with never, loop.block():
        fluid.layers.increment(n)
    assert str(program) == before
    with loop.block():
        fluid.layers.increment(n)
        fluid.layers.less_than(n, fluid.layers.fill_constant([1], "int64", 3), cond=loop.cond_var)
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(program, fetch_list=[n])[0] == 3


@pytest.mark.parametrize("is_fed", [False, True])
def test_several_backward_passes_through_one_loop_give_the_gradients_of_each(is_fed):
    """The entry behind the loop is read at the counter, which the first pass counts down."""

    def gradients(*kinds):
        main, startup = fluid.Program(), fluid.Program()
        startup.random_seed = 5
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 3])
            number, end = (layers.fill_constant([1], "int64", value) for value in (0, 3))
            array = layers.array_write(x if is_fed else layers.fc(x, 3), number)
            going = layers.less_than(number, end)
            with layers.While(going).block():
                old = layers.array_read(array, number)
                new = layers.fc(old, 3, act="tanh", param_attr="shared", bias_attr=False)
                layers.increment(number)
                layers.array_write(new, number, array)
                layers.less_than(number, end, cond=going)
            out = layers.array_read(array, number)
            losses = {"mean": layers.mean(out), "square": layers.mean(layers.square(out))}
            pairs = [fluid.backward.append_backward(losses[kind]) for kind in kinds]
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            feed = {"x": np.random.RandomState(1).rand(4, 3).astype("float32")}
            return exe.run(main, feed, [grad for found in pairs for _, grad in found])

    together = gradients("mean", "square", "mean")
    alone = [*gradients("mean"), *gradients("square"), *gradients("mean")]
    assert len(together) == len(alone)
    for found, expected in zip(together, alone, strict=True):
        assert expected.any()
        np.testing.assert_array_equal(found, expected)
