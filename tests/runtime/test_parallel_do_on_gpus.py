"""A CPU program with ParallelDo on GPUs, which NumPy stands for: what is copied where."""

import contextlib
import types

import numpy as np
import pytest

import dpexec as fluid
from tests.runtime.parallel_do_programs import CPU, assert_close, dense, normal, train

layers = fluid.layers


class GpuArray(np.ndarray):
    """An array that NumPy's own functions give back as one of them."""

    def get(self):
        return np.array(self)


def on_gpu(value):
    if isinstance(value, tuple):
        return tuple(map(on_gpu, value))
    if isinstance(value, np.generic):
        value = np.asarray(value)
    return value.view(GpuArray) if isinstance(value, np.ndarray) else value


class FakeCuPy(types.ModuleType):
    ndarray = GpuArray
    cuda = types.SimpleNamespace(Device=lambda number: contextlib.nullcontext())

    def __getattr__(self, name):
        found = getattr(np, name)
        if isinstance(found, (type, np.ufunc)) or not callable(found):
            return found
        return lambda *args, **kwargs: on_gpu(found(*args, **kwargs))


@pytest.fixture(autouse=True)
def two_gpus(monkeypatch):
    module = FakeCuPy("cupy")
    monkeypatch.setattr("dpexec.core.places._cupy", lambda: module)
    monkeypatch.setattr("dpexec.core.places.get_cuda_device_count", lambda: 2)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("keep", [False, True])
def test_training_is_that_of_the_cpu(count, keep):
    serial, feed = dense(7)
    mixed, _ = dense(7, kind="CUDA", keep_parameters=keep)
    for optimizer in (None, lambda: fluid.optimizer.Adam(0.01)):
        expected = train(serial, feed, 0, optimizer=optimizer)
        assert_close(train(mixed, feed, count, optimizer=optimizer), expected)


def test_pre_fetched_rows_and_whole_variables_are_on_the_gpus():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()):
        x, y = fluid.data("x", [None, 4]), fluid.data("y", [1, 4])
        pd = layers.ParallelDo([fluid.CUDAPlace(0), fluid.CUDAPlace(1)])
        with pd.do():
            pd.write_output(layers.elementwise_add(pd.pre_fetch(x), y))
    exe, feed = fluid.Executor(CPU), {"x": normal(5, 4), "y": normal(1, 4)}
    (found,) = exe.run(main, feed, [pd()])
    np.testing.assert_array_equal(found, feed["x"] + feed["y"])
    assert not isinstance(found, GpuArray)
    (engine,) = exe._engines.values()
    assert engine.places == [CPU, fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    rows = engine.prepare({"x": tensor(feed["x"])})["x"]
    assert [type(part) for part in rows.parts] == [GpuArray, GpuArray]
    assert list(map(len, rows.parts)) == [3, 2]


def tensor(array):
    made = fluid.Tensor()
    made.set(array)
    return made
