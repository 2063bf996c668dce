"""float16 variables are stored in 16 bits and computed in 32."""

import numpy as np
import pytest

import dpexec as fluid

layers = fluid.layers


def run(build, feed):
    main, startup = fluid.Program(), fluid.Program()
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        fetched = build()
    with fluid.scope_guard(fluid.Scope()):
        exe = fluid.Executor(fluid.CPUPlace())
        if startup.global_block().ops:
            exe.run(startup)
        return exe.run(main, feed=feed, fetch_list=fetched)


def test_long_sums_are_rounded_once():
    x = np.full((2, 4096), 0.1, np.float16)

    def build():
        data = fluid.data("x", [None, 4096], "float16")
        product = layers.matmul(data, data, transpose_y=True)
        return [product, layers.mean(data)]

    product, mean = run(build, {"x": x})
    exact = x.astype(np.float64)
    assert product.dtype == mean.dtype == np.float16
    np.testing.assert_array_equal(product, (exact @ exact.T).astype(np.float16))
    np.testing.assert_array_equal(mean, np.float16([exact.mean()]))


def test_statistics_of_batch_norm_stay_single():
    x = np.random.RandomState(0).randn(6, 3).astype(np.float16)

    def build():
        data = fluid.data("x", [None, 3], "float16")
        single = layers.batch_norm(layers.cast(data, "float32"), moving_mean_name="single")
        block = fluid.default_main_program().global_block()
        op = block.ops[-1]
        half = block.create_var(name="half", dtype="float16")
        twice = {slot: op.input(slot) for slot in op.input_names} | {"X": data}
        written = {slot: op.output(slot) for slot in op.output_names} | {"Y": half}
        block.append_op("batch_norm", twice, written, {})
        return [single, half, "single"]

    single, half, mean = run(build, {"x": x})
    assert half.dtype == np.float16 and mean.dtype == np.float32
    np.testing.assert_array_equal(half, single.astype(np.float16))


def test_rows_of_a_sparse_gradient_are_half():
    def build():
        ids = fluid.data("ids", [None, 2], "int64")
        table = fluid.embedding(ids, [5, 3], is_sparse=True, dtype="float16",
                                param_attr=fluid.initializer.Constant(0.5))  # fmt: skip
        loss = layers.mean(layers.cast(table, "float32"))
        fluid.optimizer.SGD(fluid.layers.fill_constant([1], "float16", 1.0)).minimize(loss)
        return [table.block.program.all_parameters()[0]]

    (table,) = run(build, {"ids": np.array([[0, 1], [1, 3]])})
    assert table.dtype == np.float16
    share = np.float16(1 / 12)
    expected = np.float16(0.5) - share * np.array([1, 2, 0, 1, 0], np.float16)[:, None]
    np.testing.assert_allclose(table, np.broadcast_to(expected, (5, 3)), rtol=1e-3)


@pytest.mark.parametrize("optimizer", [fluid.optimizer.SGD, fluid.optimizer.Momentum])
def test_half_parameters_are_updated_in_place(optimizer):
    def build():
        x, one = fluid.data("x", [None, 4], "float16"), fluid.initializer.Constant(1.0)
        w = layers.create_parameter([4, 1], "float16", name="w",
                                    default_initializer=one)  # fmt: skip
        loss = layers.mean(layers.cast(layers.matmul(x, w), "float32"))
        rate = layers.fill_constant([1], "float16", 0.5)
        options = {} if optimizer is fluid.optimizer.SGD else {"momentum": 0.9}
        optimizer(rate, **options).minimize(loss)
        return ["w"]

    (w,) = run(build, {"x": np.ones((2, 4), np.float16)})
    assert w.dtype == np.float16
    np.testing.assert_allclose(w, np.full((4, 1), 0.5), rtol=1e-3)
