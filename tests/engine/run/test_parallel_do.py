"""``ParallelDo``, compared with the same program without it."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.parallel_do_programs import (
    CPU,
    assert_close,
    built,
    dense,
    normal,
    parallel_do,
    train,
)

layers = fluid.layers


@pytest.mark.parametrize("rows", [51, 1])
@pytest.mark.parametrize("places", [1, 2, 4])
@pytest.mark.parametrize("keep", [False, True])
def test_gradients_and_training_are_those_of_the_serial_program(rows, places, keep):
    serial = train(*dense(rows), places=0)
    assert_close(train(*dense(rows, keep_parameters=keep), places), serial)


def test_one_place_gives_the_bits_of_the_serial_program():
    serial, parallel = (train(*dense(7), places) for places in (0, 1))
    for a, b in zip(serial[0], parallel[0], strict=True):
        assert all(map(np.array_equal, a, b))


OPTIMIZERS = {
    "momentum": lambda: fluid.optimizer.Momentum(0.1, 0.9),
    "adam": lambda: fluid.optimizer.Adam(0.01),
    "decayed": lambda: fluid.optimizer.SGD(
        layers.exponential_decay(0.1, 1, 0.5),
        regularization=fluid.regularizer.L2Decay(0.1),
        grad_clip=fluid.clip.GradientClipByGlobalNorm(0.5),
    ),
    "rmsprop": lambda: fluid.optimizer.RMSPropOptimizer(0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("keep", [False, True])
def test_optimizers_clipping_and_decay(name, keep):
    runs = [
        train(*dense(10, keep_parameters=keep), places, steps=5, optimizer=OPTIMIZERS[name])
        for places in (3, 0)
    ]
    assert_close(*runs, 2e-6)


def test_two_parallel_dos_share_devices_and_parameters():
    def build(places):
        x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1])
        shared = fluid.ParamAttr(name="shared")
        first = parallel_do(places)
        with first.do():
            hidden = layers.fc(first.read_input(x), size=4, param_attr=shared, act="tanh")
            first.write_output(hidden)
        between = layers.fc(first(), size=4, param_attr=shared)
        second = parallel_do(places and places - 1)
        with second.do():
            both = layers.elementwise_add(second.read_input(between), second.read_input(x))
            second.write_output(layers.fc(both, size=1))
        return layers.mean(layers.square_error_cost(second(), label)), [between]

    feed = {"x": normal(9, 4), "label": normal(9, 1)}
    assert_close(train(build, feed, 3), train(build, feed, 0))


@pytest.mark.parametrize("keep", [False, True])
def test_rows_in_one_block_and_the_whole_in_another(keep):
    def build(places):
        x = layers.fc(fluid.data("x", [None, 4]), 3)
        first, second = (parallel_do(places, keep_parameters=keep) for _ in range(2))
        with first.do():
            first.write_output(layers.fc(first.read_input(x), 3, act="tanh"))
        with second.do():
            mean = layers.reduce_mean(x, 0, keep_dim=True)
            rows = second.read_input(first())
            second.write_output(layers.elementwise_mul(layers.square(rows), mean))
        third = parallel_do(places, keep_parameters=keep)
        with third.do():
            sums = layers.reduce_sum(second(), 0, keep_dim=True)  # the whole of an output
            third.write_output(layers.elementwise_add(third.read_input(x), sums))
        return layers.mean(layers.square(third())), [x]

    feed = {"x": normal(5, 4)}
    assert_close(train(build, feed, 2), train(build, feed, 0), 5e-6)


def test_output_with_other_rows_goes_into_the_next_block():
    """Its rows come back in other parts than those it was merged from."""

    def build(places):
        x = fluid.data("x", [None, 6])
        first, second = parallel_do(places), parallel_do(places)
        with first.do():
            first.write_output(
                layers.tanh(layers.reshape(layers.fc(first.read_input(x), 4), [-1, 2]))
            )
        with second.do():
            second.write_output(layers.fc(second.read_input(first()), 1))
        return layers.mean(layers.square(second())), []

    feed = {"x": normal(5, 6)}
    assert_close(train(build, feed, 3), train(build, feed, 0))


def test_sparse_embedding():
    def build(places):
        ids, label = fluid.data("ids", [None, 3], "int64"), fluid.data("label", [None, 1])
        pd = parallel_do(places)
        with pd.do():
            rows = fluid.embedding(pd.read_input(ids), size=[20, 4], is_sparse=True)
            pd.write_output(layers.fc(layers.reshape(rows, [-1, 12]), size=1))
        return layers.mean(layers.square_error_cost(pd(), label)), []

    ids = np.random.default_rng(3).integers(0, 20, (7, 3))
    feed = {"ids": ids, "label": normal(7, 1)}
    main, *_ = built(build, 2)
    sparse = main.global_block().var("embedding_0.w_0@GRAD").type
    assert sparse == fluid.core.VarDesc.VarType.SELECTED_ROWS
    for optimizer in (None, lambda: fluid.optimizer.Adam(0.01)):
        assert_close(
            train(build, feed, 3, optimizer=optimizer), train(build, feed, 0, optimizer=optimizer)
        )


def conv_net(places):
    """The book's form: loss and accuracy inside, their means outside."""
    img, label = fluid.data("img", [None, 1, 8, 8]), fluid.data("label", [None, 1], "int64")
    pd = parallel_do(places)
    with pd.do():
        img_, label_ = pd.read_input(img), pd.read_input(label)
        conv = layers.conv2d(img_, 4, 3, act=None)
        norm = layers.batch_norm(conv, act="relu")
        prediction = layers.fc(layers.pool2d(norm, 2, pool_stride=2), 3, act="softmax")
        cost = layers.mean(layers.cross_entropy(prediction, label_))
        acc = layers.accuracy(prediction, label_)
        pd.write_output(cost)
        pd.write_output(acc)
    cost, acc = pd()
    return layers.mean(cost), []


def test_conv_and_batch_norm():
    feed = {"img": normal(6, 1, 8, 8), "label": np.arange(6).reshape(6, 1) % 3}
    assert_close(train(conv_net, feed, 1), train(conv_net, feed, 0))


def book(places):
    """The form of the books: loss and accuracy inside, their means outside."""
    x, label = fluid.data("x", [None, 4]), fluid.data("label", [None, 1], "int64")
    pd = parallel_do(places)
    with pd.do():
        x_, label_ = pd.read_input(x), pd.read_input(label)
        prediction = layers.fc(layers.fc(x_, 5, act="tanh"), 3, act="softmax")
        pd.write_output(layers.mean(layers.cross_entropy(prediction, label_)))
        pd.write_output(layers.accuracy(prediction, label_))
    cost, acc = (layers.mean(var) for var in pd())
    return layers.elementwise_add(cost, layers.scale(acc, 0.0)), []


def test_means_inside_and_their_mean_outside():
    feed = {"x": normal(6, 4), "label": np.arange(6).reshape(6, 1) % 3}
    serial = train(book, feed, 0)
    for places in (1, 2, 3):
        assert_close(train(book, feed, places), serial)
    seventh = {"x": normal(7, 4), "label": np.arange(7).reshape(7, 1) % 3}
    halves = [
        {name: array[part] for name, array in seventh.items()}
        for part in (slice(0, 4), slice(4, 7))
    ]
    means = [train(book, half, 0, steps=1)[0][0][0].item() for half in halves]
    (whole,) = train(book, seventh, 2, steps=1)[0]
    assert whole[0].item() == pytest.approx(sum(means) / 2, rel=1e-6)


def test_first_place_gives_the_statistics_of_batch_norm():
    img, label = normal(7, 1, 8, 8), np.arange(7).reshape(7, 1) % 3
    _, one = train(conv_net, {"img": img[:4], "label": label[:4]}, 1, steps=1)
    _, two = train(conv_net, {"img": img, "label": label}, 2, steps=1)
    for name in ("batch_norm_0.w_1", "batch_norm_0.w_2"):
        np.testing.assert_array_equal(one[name], two[name])


def with_dropout(places):
    x = fluid.data("x", [None, 40])
    pd = parallel_do(places)
    with pd.do():
        x_ = pd.read_input(x)
        pd.write_output(layers.dropout(x_, 0.5, seed=3))
    return layers.mean(layers.fc(pd(), 1)), []


def test_masks_of_all_places_are_those_of_one():
    feed = {"x": normal(11, 40)}
    one, many = train(with_dropout, feed, 1), train(with_dropout, feed, 4)
    assert_close(many, one)
    assert not np.array_equal(one[0][0][0], one[0][1][0])


def test_output_with_fewer_rows_than_places_and_its_gradient():
    """Rows of outputs need not be those of the inputs, and idle places give none."""

    def build(places):
        x = fluid.data("x", [None, 6])
        pd = parallel_do(places)
        with pd.do():
            x_ = pd.read_input(x)
            pd.write_output(layers.reshape(layers.fc(x_, 4), [-1, 2]))
        return layers.mean(layers.square(pd())), []

    for rows in (1, 3, 5):
        feed = {"x": normal(rows, 6)}
        assert_close(train(build, feed, 4), train(build, feed, 0))


def test_gradients_with_respect_to_fed_inputs():
    def gradient(places):
        main, startup = fluid.Program(), fluid.Program()
        main.random_seed = startup.random_seed = 7
        with fluid.unique_name.guard(), fluid.program_guard(main, startup):
            x = fluid.data("x", [None, 4])
            x.stop_gradient = False
            pd = parallel_do(places)
            with pd.do():
                hidden = layers.fc(pd.read_input(x), 5, act="tanh")
                pd.write_output(hidden)
                pd.write_output(layers.reduce_sum(layers.square(hidden), 1))
            hidden, squares = pd()
            total = layers.elementwise_add(layers.reduce_sum(hidden), layers.reduce_sum(squares))
            (grad,) = fluid.gradients(total, x)
            exe, scope = fluid.Executor(CPU), fluid.Scope()
            exe.run(startup, scope=scope)
            return exe.run(main, {"x": normal(7, 4)}, [grad, total], scope=scope)

    for found, expected in zip(gradient(3), gradient(0), strict=True):
        largest = np.abs(expected).max()  # some gradients are small differences
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7 * largest)


def test_what_is_no_input_is_whole_on_every_place():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, whole = fluid.data("x", [None, 2]), fluid.data("whole", [3, 2])
        twice = layers.scale(whole, 2.0)
        pd = parallel_do(2)
        with pd.do():
            sums = layers.reduce_sum(layers.elementwise_add(whole, twice), 0, keep_dim=True)
            pd.write_output(layers.elementwise_add(pd.read_input(x), sums))
        out = pd()
    x, whole = normal(5, 2), normal(3, 2)
    (found,) = fluid.Executor(CPU).run(main, {"x": x, "whole": whole}, [out])
    np.testing.assert_allclose(found, x + 3 * whole.sum(0), rtol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_kept_variables_that_are_written_outside_reach_all_places(keep):
    """A counter after the block, which the block reads in the next step."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1])
        count = layers.create_global_var([1], 0.0, "float32", persistable=True)
        pd = parallel_do(3, keep_parameters=keep)
        with pd.do():
            pd.write_output(layers.elementwise_add(pd.read_input(x), count))
        out = pd()
        layers.increment(count)
    exe, scope = fluid.Executor(CPU), fluid.Scope()
    exe.run(startup, scope=scope)
    rows = np.zeros((4, 1), "float32")
    for step in range(3):
        (found,) = exe.run(main, {"x": rows}, [out], scope=scope)
        np.testing.assert_array_equal(found, rows + step)
    scope.find_var(count.name).get_tensor().set(np.array([40.0], "float32"), CPU)
    assert exe.run(main, {"x": rows}, [out], scope=scope)[0].tolist() == [[40.0]] * 4


def test_counter_inside_advances_once():
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 1])
        count = layers.create_global_var([1], 0.0, "float32", persistable=True)
        pd = parallel_do(3)
        with pd.do():
            layers.increment(count)
            pd.write_output(layers.elementwise_add(pd.read_input(x), count))
        out, after = pd(), layers.scale(count, 10.0)
    exe, scope = fluid.Executor(CPU), fluid.Scope()
    exe.run(startup, scope=scope)
    rows = np.zeros((4, 1), "float32")
    for step in (1, 2, 3):
        found, tenfold, stored = exe.run(main, {"x": rows}, [out, after, count], scope=scope)
        np.testing.assert_array_equal(found, rows + step)
        assert (tenfold.item(), stored.item()) == (10 * step, step)


def test_control_flow_inside():
    """A branch that every place chooses for its own rows, with gradients."""

    def build(places):
        x = fluid.data("x", [None, 4])
        pd = parallel_do(places)
        with pd.do():
            hidden = layers.fc(pd.read_input(x), 3)
            large = layers.greater_than(
                layers.reduce_sum(hidden), layers.fill_constant([1], "float32", 1e9)
            )
            pd.write_output(
                layers.cond(large, lambda: layers.scale(hidden, 9.0), lambda: layers.tanh(hidden))
            )
        return layers.mean(layers.square(pd())), []

    feed = {"x": normal(7, 4)}
    assert_close(train(build, feed, 3), train(build, feed, 0))


def random_net(seed):
    """Stages inside and outside of ParallelDos, with shared weights and unused outputs."""

    def build(places):
        rng = np.random.default_rng(seed)
        options = {"keep_parameters": bool(rng.integers(2))}
        outside = [fluid.data("x", [None, 4]), fluid.data("y", [None, 4])]

        def some(pool, number):
            return [pool[i] for i in rng.integers(len(pool), size=number)]

        def stage(pool):
            made = []
            for _ in range(rng.integers(1, 4)):
                a, b = some(pool + made, 2)
                kind = rng.integers(4)
                if kind < 2:
                    shared = fluid.ParamAttr(name=f"w{rng.integers(3)}")
                    made.append(layers.fc(a, 4, param_attr=(None, shared)[kind], act="tanh"))
                else:
                    made.append(
                        (layers.elementwise_add, layers.elementwise_mul)[kind - 2](
                            a, layers.tanh(b)
                        )
                    )
            return made

        for _ in range(rng.integers(1, 4)):
            more = int(rng.integers(2))
            pd = parallel_do(places and places + more, **options)
            with pd.do():
                made = stage(
                    [(pd.pre_fetch if v.is_data else pd.read_input)(v) for v in some(outside, 2)]
                )
                for var in made[-2:]:
                    pd.write_output(var)
            merged = pd()
            outside += merged if isinstance(merged, list) else [merged]
            outside += stage(outside)
        return layers.mean(layers.square(layers.fc(outside[-1], 1))), []

    return build


@pytest.mark.parametrize("seed", range(16))
def test_random_programs_are_the_serial_ones(seed):
    rows = (1, 3, 8, 13)[seed % 4]
    feed = {"x": normal(rows, 4), "y": normal(rows, 4)}
    serial = train(random_net(seed), feed, 0)
    assert_close(train(random_net(seed), feed, 1 + seed % 3), serial, 1e-5)
