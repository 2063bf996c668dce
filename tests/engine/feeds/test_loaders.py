"""Feeds beside a loader of the program, compared with Paddle 1.8.5."""

import numpy as np
import pytest

import dpexec as fluid


@pytest.fixture(autouse=True)
def programs():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        yield main


@pytest.fixture
def y(programs):
    return fluid.data("y", [None, 1], "int64")


@pytest.fixture
def total(y):
    return fluid.layers.reduce_sum(fluid.layers.cast(y, "float32"))


@pytest.fixture
def loader(y):
    made = fluid.io.DataLoader.from_generator([y], 4, iterable=False)
    return made.set_batch_generator(lambda: ((np.array([[i], [i + 10]]),) for i in range(5)))


def test_feed_besides_a_loader(programs, loader, total):
    other = total + fluid.data("o", [1])
    exe = fluid.Executor(fluid.CPUPlace())
    loader.start()
    feed = {"o": np.ones(1, "float32")}
    assert exe.run(programs, feed=feed, fetch_list=[other])[0] == [11]
    program = fluid.CompiledProgram(programs).with_data_parallel(places=fluid.cpu_places(2))
    with pytest.raises(fluid.core.EnforceNotMet, match="o has 1 samples, too few for 2 dev"):
        exe.run(program, feed=feed, fetch_list=[other])
    assert exe.run(program, feed=[feed] * 2, fetch_list=[other])[0].tolist() == [13, 15]
    loader.reset()


def test_a_dict_fed_besides_a_loader_is_divided(programs, loader, total):
    """As models do that feed back the states of a recurrent net."""
    scores = fluid.data("scores", [None, 1], lod_level=1)
    rate = fluid.layers.create_global_var([1], 0.0, "float32", persistable=True, name="rate")
    found = [fluid.layers.sequence_pool(scores, "sum"), rate * 1.0, total]
    rows = np.arange(6, dtype="float32").reshape(6, 1)
    feed = {
        "scores": fluid.create_lod_tensor(rows, [[1, 2, 1, 2]], fluid.CPUPlace()),
        "rate": np.array([2, 3], "float32"),
    }
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(programs).with_data_parallel(places=fluid.cpu_places(2))
    loader.start()
    sums, rates, totals = exe.run(program, feed=feed, fetch_list=found)
    assert sums.ravel().tolist() == [0, 3, 3, 9]
    assert rates.tolist() == [2, 3] and totals.tolist() == [10, 12]
    loader.reset()


def test_half_of_a_loader_cannot_be_fed(programs, y, total):
    loader = fluid.io.PyReader([y, fluid.data("z", [None])], 4, iterable=False)
    loader.decorate_batch_generator(list)
    with pytest.raises(ValueError, match="has y, but lacks z"):
        fluid.Executor(fluid.CPUPlace()).run(programs, feed={"y": np.array([[7]])})
