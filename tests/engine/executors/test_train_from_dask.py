"""``Executor.train_from_dask`` on threads has the bits of a loop over slices of the collection."""

import _thread
import itertools
import signal
import threading
import time

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas
import pytest

import dpexec as fluid
from dpexec.engine.core.errors import EnforceNotMet
from tests.engine.run.nets import classifier, persistables, strategies

ROWS, BATCH = 100, 32
COLUMNS = [f"x{i}" for i in range(8)]
_random = np.random.RandomState(2)
X = _random.randn(ROWS, 8).astype("float32")
Y = _random.randint(0, 3, (ROWS, 1)).astype("int64")
FRAME = pandas.DataFrame(X.astype("float64"), columns=COLUMNS).assign(y=Y[:, 0].astype("int32"))


class Training:
    """A classifier that has been initialised, on some devices."""

    def __init__(self, devices=2, **options):
        self.net, self.scope = classifier(dropout=0.2), fluid.Scope()
        self.exe = fluid.Executor(fluid.CPUPlace())
        self.exe.run(self.net.startup, scope=self.scope)
        build, execution = strategies(**options)
        self.compiled = fluid.CompiledProgram(self.net.main).with_data_parallel(
            self.net.loss.name, build, execution, places=fluid.cpu_places(devices)
        )

    def step(self, x, y):
        feed = {"x": x, "y": y}
        return self.exe.run(self.compiled, feed, [self.net.loss], scope=self.scope)[0]

    def on(self, collection, *args, **options):
        """Train, and return the parameters."""
        options = {"batch_size": BATCH, "scope": self.scope, **options}
        self.exe.train_from_dask(self.compiled, collection, *args, **options)
        return self.state

    @property
    def state(self):
        return persistables(self.net.main, self.scope)


def looped(devices=2, epochs=1, size=BATCH):
    """What a loop over slices trains."""
    training = Training(devices)
    for _ in range(epochs):
        for first in range(0, ROWS, size):
            training.step(X[first : first + size], Y[first : first + size])
    return training.state


def assert_equal(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name], err_msg=name)


def frame(partitions=3):
    return dd.from_pandas(FRAME, npartitions=partitions)


def uneven():
    """Partitions of many sizes, two of them empty."""
    ends = np.cumsum([0, 40, 0, 1, 50, 0, 9])
    parts = [dask.delayed(FRAME[a:b]) for a, b in itertools.pairwise(ends)]
    return dd.from_delayed(parts, meta=FRAME[:0], verify_meta=False)


KINDS = {
    "dataframe": frame,
    "uneven dataframe": uneven,
    "arrays": lambda: {"x": da.from_array(X, (30, 3)), "y": da.from_array(Y, (70, 1))},
    "array and column": lambda: {"x": frame().to_dask_array()[:, :8], "y": frame()["y"]},
    "bag": lambda: db.from_sequence(list(zip(X, Y, strict=True)), npartitions=4),
    "delayed": lambda: [dask.delayed((X[i : i + 60], Y[i : i + 60])) for i in (0, 60)],
    "one delayed": lambda: dask.delayed({"x": X, "y": Y}),
}


@pytest.fixture(scope="module")
def expected():
    return looped()


@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_as_a_loop_over_slices(kind, expected):
    assert_equal(Training().on(KINDS[kind]()), expected)


def test_columns_by_the_names_of_variables(expected):
    other = frame().rename(columns={"y": "label"}).assign(unused="text")
    training = Training()
    assert_equal(training.on(other, {"x": COLUMNS, "y": "label"}), expected)
    variables = [training.net.main.global_block().var(name) for name in ("y", "x")]
    assert_equal(Training().on(frame()[["y", *COLUMNS]], variables), expected)


def test_sparse_columns_and_matrices_become_dense(expected):
    sparse = pytest.importorskip("scipy.sparse")
    table = frame()
    columns = table.astype(dict.fromkeys(COLUMNS, pandas.SparseDtype("float32", 0)))
    assert_equal(Training().on(columns, {"x": pandas.Index(COLUMNS), "y": "y"}), expected)
    rows = da.from_array(X, (50, 8)).map_blocks(sparse.csr_matrix)
    assert_equal(Training().on({"x": rows, "y": da.from_array(Y, 50)}), expected)


def test_dataframes_that_delayed_give(expected):
    parts = list(frame().to_delayed())
    assert_equal(Training().on(parts, {"x": COLUMNS, "y": "y"}), expected)


def test_epochs_go_on():
    twice = looped(epochs=2)
    ended = []
    assert_equal(Training().on(frame(), epochs=2, after_epoch=ended.append), twice)
    assert ended == [0, 1]
    training = Training()
    training.on(frame(), shuffle=2, seed=1, epochs=2)
    again = Training()
    again.on(frame(), shuffle=2, seed=1)
    assert_equal(again.on(frame(), shuffle=2, seed=1, epochs=range(1, 2)), training.state)
    assert not np.array_equal(training.state["fc_0.w_0"], twice["fc_0.w_0"])


@pytest.mark.parametrize("devices", [1, 3])
def test_a_batch_may_be_too_small_for_all_devices(devices):
    size = 33  # one row is left
    assert_equal(Training(devices).on(frame(), batch_size=size), looped(devices, size=size))


def test_the_last_batch_may_be_left_out():
    kept = Training()
    for first in (0, 33, 66):
        kept.step(X[first : first + 33], Y[first : first + 33])
    assert_equal(Training().on(frame(), batch_size=33, drop_last=True), kept.state)
    with pytest.raises(EnforceNotMet, match="has less than the 101 rows of a batch"):
        Training().on(frame(), batch_size=101, drop_last=True)
    with pytest.raises(EnforceNotMet, match="the collection has no rows"):
        Training().on(dd.from_pandas(FRAME[:0], npartitions=1))


def test_values_are_printed_and_watched(capsys):
    seen, losses = [], []
    training, loop = Training(), Training()

    class Watching(fluid.executor.FetchHandler):
        def handler(self, values):
            seen.append(values["loss"].tolist())

    handler = Watching({"loss": training.net.loss}, period_secs=0)
    printed = {"fetch_list": [training.net.loss], "print_period": 2, "debug": True}
    training.on(frame(), epochs=2, **printed, fetch_handler=handler)
    for first in [*range(0, ROWS, BATCH)] * 2:
        rows = slice(first, first + BATCH)
        losses.append(loop.step(X[rows], Y[rows]).tolist())
    shown = capsys.readouterr().out
    assert shown.count(f"{training.net.loss.name}\t{training.net.loss.name}\t") == 4
    assert "batch 8:" in shown and "batch 7:" not in shown
    assert seen and all(values in losses for values in seen) and seen[-1] == losses[-1]


def test_a_bar_shows_the_batches(capsys):
    Training().on(frame(), epochs=2, progress=True)
    shown = capsys.readouterr().err
    assert "epoch 1: 8batch" in shown


def test_plain_programs_train_too():
    training = Training()
    loop = Training()
    for first in range(0, ROWS, BATCH):
        feed = {"x": X[first : first + BATCH], "y": Y[first : first + BATCH]}
        loop.exe.run(loop.net.main, feed, scope=loop.scope)
    training.compiled = training.net.main
    assert_equal(training.on(frame()), loop.state)


def test_one_partition_is_loaded_ahead():
    """While a batch is made, the partition after the next one has not been asked for."""
    loaded, most, lock = [0], [0], threading.Lock()
    training = Training()

    def load(index):
        with lock:
            loaded[0] += 1
        return X[index * 10 : index * 10 + 10], Y[index * 10 : index * 10 + 10]

    class Watching(fluid.executor.FetchHandler):
        done = 0

        def handler(self, values):
            self.done += 1
            most[0] = max(most[0], loaded[0] - self.done)

    parts = [dask.delayed(load)(index) for index in range(10)]
    handler = Watching({"loss": training.net.loss}, period_secs=0)
    training.on(parts, batch_size=10, fetch_handler=handler)
    assert loaded[0] == 10 and most[0] <= 2


def test_an_interrupt_comes_between_steps():
    training = Training()

    def load(index):
        if index == 2:
            _thread.interrupt_main()
        return X[:64], Y[:64]

    parts = [dask.delayed(load)(index) for index in range(50)]
    with pytest.raises(KeyboardInterrupt):
        training.on(parts, epochs=100)
    steps = training.scope.run_count(training.net.main)
    assert 0 < steps < 100
    loop = Training()
    for step in range(steps):
        rows = slice(0, 32) if step % 2 == 0 else slice(32, 64)
        loop.step(X[rows], Y[rows])
    assert_equal(training.state, loop.state)


def test_an_interrupt_while_the_thread_of_partitions_starts(monkeypatch):
    training = Training()
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        if thread.name.startswith("dpexec-partitions"):
            signal.raise_signal(signal.SIGINT)

    def load(index):
        time.sleep(0.1)  # the thread is at it when the interrupt ends the epoch
        return X[:64], Y[:64]

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        training.on([dask.delayed(load)(index) for index in range(3)])
    assert not [t.name for t in threading.enumerate() if t.name.startswith("dpexec-partitions")]


@pytest.mark.parametrize(
    ("collection", "feed", "message"),
    [
        (lambda: X, ["x"], r"Dask dataframe, array, bag .*received .*ndarray"),
        (lambda: None, None, r"received <class 'NoneType'>"),
        (
            lambda: frame().assign(x3="text"),
            None,
            r"column 'x3' of type (str|object|string) .*'x'.*float32",
        ),
        (frame, ["x"], r"9 columns \('x0', .*\) for 8 for 'x': .*feed="),
        (frame, {"x": COLUMNS, "y": "label"}, r"no column 'label' for Variable 'y': it has 'x0'"),
        (frame, ["z"], r"var z not in this block"),
        (lambda: da.from_array(X), {"x": "a"}, r"feed says which columns .*feed=\['x'\]"),
        (lambda: frame().compute(), None, r"a DataFrame of this process.*from_pandas"),
        (
            frame,
            {"x": COLUMNS[:7], "y": "y"},
            r"'x' takes 8 columns, .* feed has 7: 'x0', 'x1'",
        ),
        (
            lambda: list(frame().to_delayed()),
            {"x": COLUMNS[:7], "y": "y"},
            r"'x' takes 8 columns, .* feed has 7: 'x0', 'x1'",
        ),
        (
            lambda: list(frame().to_delayed()),
            None,
            r"partition 0 is a dataframe: say which columns 'x', 'y' get, .*feed=",
        ),
        (
            lambda: dask.delayed((X, Y)),
            {"x": COLUMNS, "y": "y"},
            r"partition 0 is a tuple, but feed says which columns .* only dataframes have",
        ),
        (lambda: da.from_array(X), [3], r"feed names Variables, .*int"),
        (lambda: {"x": da.from_array(X)}, ["x", "y"], r"for x, but feed is of x, y"),
        (
            lambda: {"x": [dask.delayed(X)] * 2, "y": frame()["y"]},
            None,
            r"different numbers of partitions: 2 of 'x', 3 of 'y'",
        ),
        (
            lambda: {"x": da.from_array(X, (50, 8)), "y": [dask.delayed(Y[:n]) for n in (50, 49)]},
            None,
            r"partition 1 has different numbers of rows: 50 for 'x', 49 for 'y'",
        ),
        (
            lambda: frame().assign(y=frame()["y"] + (frame()["x0"] == X[68, 0]) * 0.5),
            None,
            r"partition 2, column 'y' holds \d.5 in row 1, .*int64(.|\n)*Partition 2 of the coll",
        ),
    ],
)
def test_what_does_not_fit_is_named(collection, feed, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Training().on(collection(), feed)


def test_what_cannot_run():
    training = Training()
    with pytest.raises(ValueError, match="batch_size must be positive, but received 0"):
        training.on(frame(), batch_size=0)
    with pytest.raises(TypeError, match="batch_size must be an integer of 64 bits"):
        training.on(frame(), batch_size="64")
    with pytest.raises(TypeError, match=r"epochs is a number of epochs.* not 0\.5"):
        training.on(frame(), epochs=0.5)
    with pytest.raises(ValueError, match="epochs must not be negative, but received -1"):
        training.on(frame(), epochs=-1)
    with pytest.raises(ValueError, match=r"shuffle is a number of partitions.* received -2"):
        training.on(frame(), shuffle=-2)
    training.exe.close()
    with pytest.raises(RuntimeError, match="closed"):
        training.on(frame())


def test_sequences_and_parameters_are_no_rows():
    words = fluid.data("words", [None, 1], "int64", lod_level=1)
    exe = fluid.Executor(fluid.CPUPlace())
    with pytest.raises(ValueError, match="Variable 'words' holds sequences"):
        exe.train_from_dask(collection=da.from_array(Y), feed=[words])
    net = classifier()
    with pytest.raises(ValueError, match=r"'fc_0.w_0' is persistable"):
        exe.train_from_dask(net.main, da.from_array(X), ["fc_0.w_0"])


def test_what_all_partitions_share_is_told_in_the_guide():
    """Each partition is computed by itself, so what they share is computed again, or persisted."""
    calls = []
    mean = dask.delayed(lambda: calls.append(1) or X.mean(0))()
    parts = [
        dask.delayed(lambda first, m: (X[first : first + 50] - m, Y[first : first + 50]))(i, mean)
        for i in (0, 50)
    ]
    Training().on(parts)
    assert len(calls) == 2
