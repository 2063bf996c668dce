"""DataLoader and PyReader: the expected feeds and errors are those of Paddle 1.8.5."""

import os
import pickle
import threading
import traceback

import numpy as np
import pytest

import dpexec as fluid
from dpexec.io import DataLoader, PyReader
from tests.engine.run.nets import classifier, persistables
from tests.fakes.cupy import install

EnforceNotMet, EOFException = fluid.core.EnforceNotMet, fluid.core.EOFException
cpus = fluid.cpu_places


@pytest.fixture(autouse=True)
def programs():
    main = fluid.Program()
    with fluid.program_guard(main, fluid.Program()), fluid.unique_name.guard():
        yield main


@pytest.fixture
def y(programs):
    return fluid.data("y", [None, 1], "int64")


def samples():
    return ((i,) for i in range(5))


def sample_lists():
    return ([(i,), (i + 10,)] for i in range(3))


def batches():
    return ((np.array([[i], [i + 10]]),) for i in range(5))


def read(loader):
    def plain(feed):
        return [np.array(t).ravel().tolist() for t in getattr(feed, "values", lambda: feed)()]

    return [[plain(feed)[0] for feed in feeds] for feeds in loader]


def pairs(*firsts):
    return [[i, i + 10] for i in firsts]


@pytest.mark.parametrize(
    ("options", "method", "arguments", "devices", "expected"),
    [
        ({}, "sample", (samples, 2), 1, [[[0, 1]], [[2, 3]]]),
        ({}, "sample", (samples, 2, False), 1, [[[0, 1]], [[2, 3]], [[4]]]),
        ({}, "sample", (samples, 2, False), 2, [[[0, 1], [2, 3]]]),
        ({"drop_last": False}, "sample", (samples, 2, False), 2, [[[0, 1], [2, 3]], [[4]]]),
        ({}, "sample_list", (sample_lists,), 1, [pairs(0), pairs(1), pairs(2)]),
        ({}, "batch", (batches,), 2, [pairs(0, 1), pairs(2, 3)]),
        ({"drop_last": False}, "batch", (batches,), 2, [pairs(0, 1), pairs(2, 3), pairs(4)]),
        ({"return_list": True}, "batch", (batches,), 1, [pairs(i) for i in range(5)]),
    ],
)
def test_iterable_loader(y, options, method, arguments, devices, expected):
    loader = DataLoader.from_generator([y], 4, **options)
    assert getattr(loader, f"set_{method}_generator")(*arguments, places=cpus(devices)) is loader
    assert read(loader) == expected
    assert read(loader()) == expected
    first = next(iter(loader))[0]
    assert isinstance(first, list) if options.get("return_list") else list(first) == ["y"]


def test_pyreader_has_the_older_names(y):
    reader = PyReader(feed_list=[y], capacity=2)
    reader.decorate_sample_generator(samples, 2, places=fluid.CPUPlace())
    assert read(reader) == [[[0, 1]], [[2, 3]]]
    reader.decorate_sample_list_generator(sample_lists, fluid.CPUPlace())
    assert read(reader) == [pairs(0), pairs(1), pairs(2)]
    reader.decorate_batch_generator(batches, cpus(2))
    assert read(reader()) == [pairs(0, 1), pairs(2, 3)]


def test_arguments_are_checked(y):
    with pytest.raises(ValueError, match="capacity"):
        DataLoader.from_generator([y])
    with pytest.raises(ValueError, match="Feed list"):
        DataLoader.from_generator(capacity=4)
    loader = DataLoader.from_generator([y], 4)
    with pytest.raises(AssertionError, match="has not set yet"):
        iter(loader)
    with pytest.raises(AssertionError, match="batch_size"):
        loader.set_sample_generator(samples, 0)
    with pytest.raises(AssertionError, match="Places cannot be None"):
        loader.set_batch_generator(batches)
    for method in (loader.start, loader.reset):
        with pytest.raises(AssertionError, match=f"{method.__name__}.. cannot be called"):
            method()
    with pytest.raises(AssertionError, match="not iterable"):
        iter(DataLoader.from_generator([y], 4, iterable=False))


def test_sequences_are_read():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    places = fluid.cpu_places(2)
    loader = DataLoader.from_generator([words], 4)
    loader.set_sample_list_generator(lambda: [[([1, 2],), ([3],)], [([4],)]], places)
    first, second = next(iter(loader))
    assert [batch["words"].lod() for batch in (first, second)] == [[[0, 2, 3]], [[0, 1]]]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ((np.ones((1, 1)), np.ones((1, 1))), r"1 fields \(y\), but the generator gave 2"),
        (np.ones((2, 1)), "for each of y, but the generator gave a ndarray"),
    ],
)
def test_batches_with_wrong_fields(y, batch, message):
    loader = DataLoader.from_generator([y], 4)
    loader.set_batch_generator(lambda: [batch], cpus(1))
    with pytest.raises(EnforceNotMet, match=message):
        read(loader)


def failing():
    yield (np.array([[1]]),)
    raise KeyError("boom")


def test_exception_of_the_generator_reaches_the_loop(y):
    """Paddle raises its own "queue is killed"; here it is the generator's own exception."""
    loader = DataLoader.from_generator([y], 4).set_batch_generator(failing, cpus(1))
    feeds = iter(loader)
    assert read([next(feeds)]) == [[[1]]]
    with pytest.raises(KeyError, match="boom") as caught:
        next(feeds)
    assert "failing" in [frame.name for frame in traceback.extract_tb(caught.tb)]


def reading_threads():
    return [t for t in threading.enumerate() if t.name == "dpexec-prefetch"]


def test_breaking_off_ends_the_thread(y):
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield (np.array([[1]]),)
        finally:
            closed.set()

    loader = DataLoader.from_generator([y], 2).set_batch_generator(endless, cpus(1))
    for _ in loader:
        break
    assert closed.wait(10)
    assert not reading_threads()


def test_batches_are_read_ahead_of_the_step_up_to_the_capacity(y):
    made, full = [], threading.Event()

    def counted():
        for i in range(10):
            made.append(i)
            if i == 4:  # one is consumed, three wait, and the fifth waits for room
                full.set()
            yield (np.array([[i]]),)

    loader = DataLoader.from_generator([y], 3).set_batch_generator(counted, cpus(1))
    feeds = iter(loader)
    next(feeds)
    assert full.wait(10)  # while the "step" of the first batch is under way
    assert made == [0, 1, 2, 3, 4]
    assert len(list(feeds)) == 9


def test_generator_may_reuse_its_array(y):
    def reusing():
        array = np.zeros((1, 1), "int64")
        for i in range(4):
            array[:] = i
            yield [array]

    loader = DataLoader.from_generator([y], 4).set_batch_generator(reusing, cpus(1))
    assert read(list(loader)) == [[[i]] for i in range(4)]


# ---- part of the program


@pytest.fixture
def total(y):
    return fluid.layers.reduce_sum(fluid.layers.cast(y, "float32"))


@pytest.fixture
def loader(y):
    return DataLoader.from_generator([y], 4, iterable=False).set_batch_generator(batches)


def epoch(loader, run):
    """Results of all runs until the end."""
    results = []
    loader.start()
    try:
        while True:
            results.append(run().tolist())
    except EOFException:
        loader.reset()
    return results


ALL = [[10.0], [12.0], [14.0], [16.0], [18.0]]


def runner(program, total):
    exe = fluid.Executor(fluid.CPUPlace())
    return lambda: exe.run(program, fetch_list=[total])[0]


def test_executor_takes_batches_until_the_end(programs, loader, total):
    run = runner(programs, total)
    assert epoch(loader, run) == ALL
    assert epoch(loader, run) == ALL
    loader.start()
    run()
    loader.reset()
    assert epoch(loader, run) == ALL  # from the start again
    loader.start()
    for _ in range(5):
        run()
    for _ in range(2):
        with pytest.raises(EOFException, match="There is no next data"):
            run()


@pytest.mark.parametrize(
    ("drop_last", "expected"), [(True, [[10, 12], [14, 16]]), (False, [[10, 12], [14, 16], [18]])]
)
def test_devices_take_a_batch_each(programs, y, total, drop_last, expected):
    loader = DataLoader.from_generator([y], 4, iterable=False, drop_last=drop_last)
    loader.set_batch_generator(batches)
    program = fluid.CompiledProgram(programs).with_data_parallel(places=cpus(2))
    assert epoch(loader, runner(program, total)) == expected
    assert epoch(loader, runner(fluid.CompiledProgram(programs), total)) == ALL


@pytest.mark.parametrize("drop_last", [True, False])
def test_training_ends_where_batches_are_too_few_for_all_devices(drop_last):
    with fluid.program_guard(fluid.Program(), fluid.Program()):
        x = fluid.data("x", [None, 2])
        loader = DataLoader.from_generator([x], 4, iterable=False, drop_last=drop_last)
        loader.set_batch_generator(lambda: ([np.full((2, 2), n, "float32")] for n in range(5)))
        loss = fluid.layers.mean(fluid.layers.fc(x, 1, bias_attr=False))
        fluid.optimizer.SGD(0.0).minimize(loss)
        exe = fluid.Executor(fluid.CPUPlace())
        exe.run(fluid.default_startup_program())
        program = fluid.CompiledProgram(fluid.default_main_program())
        program = program.with_data_parallel(loss.name, places=cpus(2))
        for _ in range(2):
            fetched = epoch(loader, lambda: exe.run(program, fetch_list=[loss])[0])
            assert len(fetched) == 2  # and the fifth batch is left, as in the real Paddle


def test_every_iteration_of_a_run_takes_a_batch(programs, loader, total):
    strategy = fluid.ExecutionStrategy()
    strategy.num_iteration_per_run = 2
    two = fluid.CompiledProgram(programs).with_data_parallel(places=cpus(1), exec_strategy=strategy)
    exe = fluid.Executor(fluid.CPUPlace())
    results = epoch(loader, lambda: exe.run(two, fetch_list=[total])[0])
    assert results == [ALL[1], ALL[3], ALL[4]]  # the last one alone


def test_parallel_executor_takes_batches(programs, loader, total, monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    executor = fluid.ParallelExecutor(False, main_program=programs)
    assert epoch(loader, lambda: executor.run([total.name])[0]) == [[10, 12], [14, 16]]


def test_a_program_with_a_loader_that_does_not_run(programs, loader, total):
    run = runner(programs, total)
    with pytest.raises(EnforceNotMet, match=r"reader of y is not started.*start\(\)"):
        run()  # Paddle waits forever
    loader.start()
    with pytest.raises(EnforceNotMet, match="started already"):
        loader.start()
    loader.reset()
    unset = PyReader([fluid.data("z", [None])], 4, iterable=False)
    with pytest.raises(AssertionError, match="has not set yet"):
        unset.start()


def test_fed_variables_are_not_read(programs, y, loader, total):
    exe = fluid.Executor(fluid.CPUPlace())
    test = programs.clone(for_test=True)
    assert exe.run(test, feed={"y": np.array([[7]])}, fetch_list=[total])[0] == [7]
    assert epoch(loader, runner(test, total)) == ALL


def test_a_program_travels_without_its_loaders(programs, loader, total):
    loader.start()
    twin = pickle.loads(pickle.dumps(programs))
    loader.reset()
    exe = fluid.Executor(fluid.CPUPlace())
    assert exe.run(twin, feed={"y": np.array([[7]])}, fetch_list=[total.name])[0] == [7]


def test_exception_of_the_generator_reaches_the_run(programs, y, total):
    loader = DataLoader.from_generator([y], 4, iterable=False).set_batch_generator(failing)
    run = runner(programs, total)
    loader.start()
    assert run() == [1]
    with pytest.raises(KeyError, match="boom"):
        run()
    loader.reset()
    assert not reading_threads()


def test_training_equals_training_with_feeds():
    net = classifier()
    rng = np.random.RandomState(4)
    data = [
        (rng.randn(6, 8).astype("float32"), rng.randint(0, 3, (6, 1)).astype("int64"))
        for _ in range(6)
    ]
    with fluid.program_guard(net.main, net.startup):
        block = net.main.global_block()
        loader = DataLoader.from_generator([block.var("x"), block.var("y")], 2, iterable=False)
    loader.set_batch_generator(lambda: data)
    feeds = [{"x": x, "y": y} for x, y in data]

    def train(fed):
        scope = fluid.Scope()
        with fluid.scope_guard(scope):
            exe = fluid.Executor(fluid.CPUPlace())
            exe.run(net.startup)
            program = fluid.CompiledProgram(net.main).with_data_parallel(
                net.loss.name, places=cpus(2)
            )
            if fed:
                for pair in zip(feeds[::2], feeds[1::2], strict=True):
                    exe.run(program, feed=list(pair))
            else:
                epoch(loader, lambda: exe.run(program, fetch_list=[net.loss])[0])
            return persistables(net.main, scope)

    fed, read_ = train(True), train(False)
    assert all(np.array_equal(fed[name], read_[name]) for name in fed) and fed


def whoami():
    return ([(os.getpid(),)] for _ in range(2))


@pytest.mark.parametrize("iterable", [True, False])
def test_a_generator_in_a_process_of_its_own(programs, y, total, iterable):
    loader = DataLoader.from_generator([y], 2, iterable=iterable, use_multiprocess=True)
    loader.set_sample_list_generator(whoami, places=cpus(1) if iterable else None)
    if iterable:
        found = [first for feeds in read(loader) for ((first,),) in [feeds]]
    else:
        exe = fluid.Executor(fluid.CPUPlace())
        found = [f for (f,) in epoch(loader, lambda: exe.run(programs, fetch_list=[total])[0])]
    assert len(set(found)) == 1 and os.getpid() not in found


def test_batches_are_copied_to_the_gpus_ahead(y, monkeypatch):
    cupy = install(monkeypatch, 2)
    places = [fluid.CUDAPlace(0), fluid.CUDAPlace(1)]
    loader = DataLoader.from_generator([y], 4).set_batch_generator(batches, places=places)
    feeds = [[feed["y"] for feed in step] for step in loader]
    assert [[tensor.place for tensor in step] for step in feeds] == [places, places]
    copies = [(gpu, stream) for gpu, stream, name in cupy.machine.log if name == "asarray"]
    feeding = [(gpu, cupy.machine.streams[2 + gpu].name) for gpu in (0, 1)]  # behind null streams
    assert copies[:4] == feeding * 2
    assert set(cupy.machine.reads) == {"stream"}  # the loader's thread waits, nobody else
    found = [[int(tensor.numpy()[0, 0]) for tensor in step] for step in feeds]
    assert found == [[0, 1], [2, 3]]


def test_samples_are_stacked_field_by_field():
    samples = [(np.array([i, i + 1], "float32"), 2 * i) for i in range(3)]
    found = fluid.io.default_collate_fn(samples)
    np.testing.assert_array_equal(found[0], [[0, 1], [1, 2], [2, 3]])
    np.testing.assert_array_equal(found[1], [0, 2, 4])
    (alone,) = fluid.io.default_collate_fn([sample[0] for sample in samples])
    np.testing.assert_array_equal(alone, found[0])
