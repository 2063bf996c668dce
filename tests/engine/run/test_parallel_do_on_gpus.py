"""``ParallelDo`` in a CPU program on simulated GPUs: values and copies."""

import numpy as np
import pytest

import dpexec as fluid
from tests.engine.run.parallel_do_programs import CPU, assert_close, dense, normal, train
from tests.fakes.cupy import install

layers = fluid.layers


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    return install(monkeypatch, 2)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_training_is_that_of_the_cpu(count, keep):
    serial, feed = dense(7)
    mixed, _ = dense(7, kind="CUDA", keep_parameters=keep)
    for optimizer in (None, lambda: fluid.optimizer.Adam(0.01)):
        expected = train(serial, feed, 0, optimizer=optimizer)
        assert_close(train(mixed, feed, count, optimizer=optimizer), expected)


def test_pre_fetched_rows_and_whole_variables_are_on_the_gpus(cupy):
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [1, 4])
        pd = layers.ParallelDo([fluid.CUDAPlace(0), fluid.CUDAPlace(1)])
        with pd.do():
            pd.write_output(layers.elementwise_add(pd.pre_fetch(x), y))
    exe, feed = fluid.Executor(CPU), {"x": normal(5, 4), "y": normal(1, 4)}
    (found,) = exe.run(main, feed, [pd()])
    np.testing.assert_array_equal(found, feed["x"] + feed["y"])
    (engine,) = exe._engines.values()
    assert engine.places == [CPU, fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    rows = engine.feeding.prepare({"x": tensor(feed["x"])})["x"]
    assert [part.device.id for part in rows.parts] == [0, 1]
    assert list(map(len, rows.parts)) == [3, 2]


def test_sequences_are_divided_among_gpus():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x = fluid.data("x", [None, 2], lod_level=1)
        pd = layers.ParallelDo([fluid.CUDAPlace(0), fluid.CUDAPlace(1)])
        with pd.do():
            twice = layers.scale(pd.read_input(x), 2.0)
            pd.write_output(twice)
            pd.write_output(layers.sequence_pool(twice, "sum"))
    rows = normal(7, 2)
    feed = {"x": fluid.create_lod_tensor(rows, [[3, 1, 3]], CPU)}
    words, totals = fluid.Executor(CPU).run(main, feed, pd(), return_numpy=False)
    assert words.lod() == [[0, 3, 4, 7]]
    np.testing.assert_array_equal(np.array(words), 2 * rows)
    np.testing.assert_allclose(np.array(totals), 2 * np.add.reduceat(rows, [0, 3, 4]), rtol=1e-6)


def tensor(array):
    made = fluid.Tensor()
    made.set(array)
    return made
