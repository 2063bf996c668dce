"""Optimizers update in place, and values that were fetched or fed before stay unchanged."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.nets import AllReduce, Reduce, persistables, strategies

layers = fluid.layers


@pytest.fixture
def programs():
    """A step that looks at its parameter before and after the update."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 6], "float32")
        w = layers.create_parameter([4, 6], "float32", name="w")
        flat = layers.reshape(w, [24])
        loss = layers.mean(layers.square(layers.matmul(x, layers.transpose(w, [1, 0]))))
        kept = layers.create_global_var([24], 0.0, "float32", persistable=True, name="kept")
        viewed = layers.create_global_var([4, 6], 0.0, "float32", persistable=True, name="viewed")
        shape = main.global_block().create_var(name="viewed_shape", dtype="float32")
        main.global_block().append_op(
            type="reshape2",
            inputs={"X": flat},
            outputs={"Out": viewed, "XShape": shape},
            attrs={"shape": [4, 6]},
        )
        fluid.optimizer.Momentum(0.5, 0.9).minimize(loss)
        mean_before = layers.mean(flat)
        layers.assign(flat, kept)
        mean_after = layers.mean(w)
    return main, startup, loss, [mean_before, mean_after]


@pytest.mark.parametrize("fetch_loss", [True, False])
@pytest.mark.parametrize("granularity", ["segment", "op"])
@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("devices", [None, 1, 3])
def test_views_of_a_parameter_keep_the_value_before_the_update(
    programs, devices, mode, granularity, fetch_loss
):
    main, startup, loss, means = programs
    scope = fluid.Scope()
    batch = {"x": np.random.RandomState(0).randn(6, 6).astype("float32")}
    with fluid.scope_guard(scope):
        exe = fluid.Executor()
        exe.run(startup)
        program = main
        if devices is not None:
            build, execution = strategies(mode, task_granularity=granularity)
            program = fluid.CompiledProgram(main).with_data_parallel(
                loss.name, build, execution, places=[fluid.CPUPlace()] * devices
            )
        for _ in range(3):
            before = persistables(main, scope)["w"]
            fetched = exe.run(program, batch, [*means, loss] if fetch_loss else means)
            state = persistables(main, scope)
            assert not np.array_equal(state["w"], before)
            np.testing.assert_array_equal(state["kept"], before.reshape(24))
            np.testing.assert_array_equal(state["viewed"], before)
            np.testing.assert_allclose(fetched[0], before.mean(), rtol=1e-5)
            np.testing.assert_allclose(fetched[1], state["w"].mean(), rtol=1e-5)


def test_parameter_clipped_after_its_update_is_stored_clipped():
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 6], "float32")
        w = layers.create_parameter([6, 1], "float32", name="w")
        rows = layers.reshape(w, [6])
        loss = layers.mean(layers.matmul(x, w))
        fluid.optimizer.SGD(10.0).minimize(loss)
        layers.assign(layers.clip(w, -0.01, 0.01), w)
        again = layers.reduce_sum(rows)
    scope = fluid.Scope()
    with fluid.scope_guard(scope):
        exe = fluid.Executor()
        exe.run(startup)
        before = persistables(main, scope)["w"]
        (total,) = exe.run(main, {"x": np.ones((4, 6), "float32")}, [again])
    np.testing.assert_allclose(total, before.sum(), rtol=1e-5)
    np.testing.assert_array_equal(persistables(main, scope)["w"], np.full((6, 1), -0.01, "f4"))


@pytest.mark.parametrize("mode", [AllReduce, Reduce])
@pytest.mark.parametrize("devices", [None, 1, 3])
def test_fed_parameter_is_updated_once_and_the_feed_stays(devices, mode):
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2], "float32")
        loss = layers.mean(layers.fc(x, 1))
        fluid.optimizer.SGD(0.25).minimize(loss)
    scope = fluid.Scope()
    exe = fluid.Executor()
    exe.run(startup, scope=scope)
    program = main
    if devices is not None:
        program = fluid.CompiledProgram(main).with_data_parallel(
            loss.name, strategies(mode)[0], places=[fluid.CPUPlace()] * devices
        )
    batch, bias = np.ones((6, 2), "float32"), np.array([0.5], "float32")
    (fetched,) = exe.run(program, {"x": batch, "fc_0.b_0": bias}, ["fc_0.b_0"], scope=scope)
    np.testing.assert_allclose(bias, 0.5)
    np.testing.assert_allclose(fetched, 0.25, rtol=1e-6)
    np.testing.assert_allclose(persistables(main, scope)["fc_0.b_0"], [0.25], rtol=1e-6)
    exe.run(program, {"x": batch}, scope=scope)
    np.testing.assert_allclose(persistables(main, scope)["fc_0.b_0"], [0.0], atol=1e-6)
