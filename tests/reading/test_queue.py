"""Queues of loaders: waiting, pushed batches, other numbers of devices."""

import numpy as np
import pytest

import dpexec as fluid
from dpexec.io import DataLoader, PyReader
from tests.waiting import until

EnforceNotMet, EOFException = fluid.core.EnforceNotMet, fluid.core.EOFException
ALL = [[10.0], [12.0], [14.0], [16.0], [18.0]]


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


def batches():
    return ((np.array([[i], [i + 10]]),) for i in range(5))


def runner(program, total):
    exe = fluid.Executor(fluid.CPUPlace())
    return lambda: exe.run(program, fetch_list=[total])[0].tolist()


@pytest.mark.parametrize("kind", [DataLoader.from_generator, PyReader])
def test_queue_tells_how_many_batches_wait(programs, y, total, kind):
    loader = kind([y], 3, iterable=False)
    loader.set_batch_generator(batches)
    run = runner(programs, total)
    assert (loader.queue.size(), loader.queue.capacity()) == (0, 3)
    loader.start()
    until(lambda: loader.queue.size() == 3)
    assert [run() for _ in range(5)] == ALL
    assert loader.queue.size() == 0
    loader.reset()
    assert loader.queue.size() == 0


def test_queue_of_a_loop_tells_how_many_batches_wait(y):
    loader = DataLoader.from_generator([y], 2).set_batch_generator(batches, fluid.cpu_places(1))
    for index, _ in enumerate(loader):
        until(lambda index=index: loader.queue.size() == min(2, 4 - index))


def test_a_closed_queue_gives_what_waits_and_no_more(programs, y, total):
    loader = DataLoader.from_generator([y], 4, iterable=False).set_batch_generator(batches)
    run = runner(programs, total)
    loader.start()
    until(lambda: loader.queue.size() == 4)
    loader.queue.close()
    assert [run() for _ in range(4)] == ALL[:4]
    with pytest.raises(EOFException):
        run()
    loader.reset()
    loader.start()
    assert [run() for _ in range(5)] == ALL


def test_batches_may_be_pushed(programs, total, y):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        reader = fluid.layers.py_reader(4, [(-1, 1)], ["int64"])
        sums = fluid.layers.reduce_sum(fluid.layers.read_file(reader))
        for batch in list(batches())[:3]:
            assert reader.queue.push(batch)
        assert reader.queue.size() == 3
        reader.queue.close()
        assert not reader.queue.push([np.array([[1]])])
        run = runner(fluid.default_main_program(), sums)
        assert [run() for _ in range(3)] == [[10], [12], [14]]
        with pytest.raises(EOFException):
            run()
        with pytest.raises(EnforceNotMet, match="2"):
            reader.queue.push([np.array([[1]])] * 2)


def test_a_loader_for_fewer_devices_says_how_to_make_it(programs, y):
    loss = fluid.layers.mean(fluid.layers.fc(fluid.layers.cast(y, "float32"), 1))
    fluid.optimizer.SGD(0.1).minimize(loss)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(programs).with_data_parallel(
        loss.name, places=fluid.cpu_places(2)
    )
    loader = DataLoader.from_generator([y], 4).set_batch_generator(batches, fluid.cpu_places(1))
    said = r"number 1 does not match the device number 2.*places=fluid.cpu_places\(2\)"
    for feed in loader:
        with pytest.raises(EnforceNotMet, match=said):
            exe.run(program, feed=feed)
    loader.set_batch_generator(batches, fluid.cpu_places(3))
    for feed in loader:
        with pytest.raises(IndexError, match=r"3 elements for 2 .*places=fluid.cpu_places\(2\)"):
            exe.run(program, feed=feed)
