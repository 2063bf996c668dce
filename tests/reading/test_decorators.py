"""Reader decorators."""

import os
import pickle
import random
import threading

import numpy as np
import pytest

import dpexec as fluid
from dpexec.paddle import reader
from dpexec.reading import decorators as r
from tests.waiting import until


def numbers(n):
    return lambda: iter(range(n))


def failing():
    yield 1
    raise OSError("disk")


@pytest.mark.parametrize(("drop", "last"), [(False, [[6]]), (True, [])])
def test_batch(drop, last):
    batches = r.batch(numbers(7), 3, drop_last=drop)
    assert list(batches()) == [[0, 1, 2], [3, 4, 5], *last]
    assert list(batches()) == [[0, 1, 2], [3, 4, 5], *last]


@pytest.mark.parametrize("size", [0, -1])
def test_batch_refuses_sizes_below_one(size):
    with pytest.raises(ValueError, match="must be positive"):
        r.batch(numbers(3), size)


def test_cache_reads_once():
    calls = []
    cached = r.cache(lambda: calls.append(1) or range(3))
    assert list(cached()) == list(cached()) == [0, 1, 2]
    assert calls == [1]


def test_shuffle_stays_in_its_window_and_follows_the_global_seed():
    random.seed(3)
    first = list(r.shuffle(numbers(10), 4)())
    random.seed(3)
    assert first == list(r.shuffle(numbers(10), 4)())
    assert sorted(first[:4]) == [0, 1, 2, 3]
    assert sorted(first[8:]) == [8, 9]
    assert first != list(range(10))


def test_chain_firstn_and_map():
    assert list(r.chain(numbers(2), numbers(3))()) == [0, 1, 0, 1, 2]
    assert list(r.firstn(numbers(5), 2)()) == [0, 1]
    assert list(r.map_readers(lambda a, b: a + b, numbers(3), numbers(5))()) == [0, 2, 4]


def test_compose_flattens_tuples():
    assert list(r.compose(lambda: [(1, 2), (3, 4)], numbers(2))()) == [(1, 2, 0), (3, 4, 1)]


def test_compose_of_different_lengths():
    with pytest.raises(r.ComposeNotAligned):
        list(r.compose(numbers(2), numbers(3))())
    assert list(r.compose(numbers(2), numbers(3), check_alignment=False)()) == [(0, 0), (1, 1)]


def test_compose_passes_other_errors_on():
    def broken():
        yield 1
        raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row") as info:
        list(r.compose(broken, numbers(3))())
    assert not isinstance(info.value, r.ComposeNotAligned)


@pytest.mark.parametrize(
    "decorate",
    [
        lambda reader: r.buffered(reader, 2),
        lambda reader: r.xmap_readers(lambda x: x, reader, 2, 4),
    ],
)
def test_threads_keep_the_order_and_pass_errors_on(decorate):
    assert list(decorate(numbers(50))()) == list(range(50))
    samples = decorate(failing)()
    with pytest.raises(OSError, match="disk"):
        list(samples)


def test_buffered_thread_ends_when_nobody_reads_on():
    samples = r.buffered(numbers(1000), 2)()
    assert next(samples) == 0
    samples.close()
    until(lambda: all(t.name != "dpexec-buffered" for t in threading.enumerate()))


def test_xmap_passes_errors_of_the_mapper_on():
    with pytest.raises(ZeroDivisionError):
        list(r.xmap_readers(lambda x: 1 // x, numbers(3), 2, 2)())


def test_fluid_io_has_the_decorators_of_paddle_reader():
    for name in reader.__all__:
        assert getattr(fluid.io, name) is getattr(reader, name)
    shuffled = fluid.io.shuffle(lambda: range(7), 3)
    assert [len(part) for part in fluid.io.batch(shuffled, 3)()] == [3, 3, 1]


def test_processes_read_in_turn():
    assert list(r.multiprocess_reader([numbers(3), lambda: "ab"])()) == [0, "a", 1, "b", 2]
    pids = set(r.multiprocess_reader([pid, pid])())
    assert len(pids) == 2 and os.getpid() not in pids
    with pytest.raises(AssertionError, match="at least one"):
        r.multiprocess_reader([])


def pid():
    yield os.getpid()


def dying():
    yield 1
    os._exit(3)


def unsendable():
    yield threading.Lock()


@pytest.mark.parametrize(
    ("reader", "error", "message"),
    [
        (failing, OSError, "disk"),
        (dying, RuntimeError, "the process of reader dying died"),
        (unsendable, pickle.PicklingError, "reader unsendable .* cannot be pickled: .*lock"),
    ],
)
def test_what_happens_in_a_process_is_raised_here(reader, error, message):
    with pytest.raises(error, match=message):
        list(r.multiprocess_reader([reader])())


def test_breaking_off_ends_the_processes():
    reading = r.multiprocess_reader([forever])()
    child = next(reading)
    reading.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def forever():
    while True:
        yield os.getpid()


@pytest.mark.parametrize("decorate", [r.firstn, r.shuffle])
def test_sizes_are_whole_numbers(decorate):
    for size in (2.0, np.int64(2), np.array(2), np.float32(2)):
        assert set(decorate(lambda: [0, 1], size)()) == {0, 1}
    for size in (2.5, "2", [2], None, float("nan"), float("inf"), np.array([2])):
        with pytest.raises(TypeError, match="must be a whole number, but is"):
            decorate(lambda: [0, 1], size)
    with pytest.raises(ValueError, match="must not be negative"):
        decorate(lambda: [0, 1], -1)


@pytest.mark.parametrize("iterable", [True, False])
@pytest.mark.parametrize("feed_list", [3, "x", [3], ["x"], [None]])
def test_loaders_feed_lists_of_variables(feed_list, iterable):
    with pytest.raises(TypeError, match="feed_list must be a list of Variables"):
        fluid.io.DataLoader.from_generator(feed_list, capacity=2, iterable=iterable)
