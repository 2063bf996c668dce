"""Python's search for cycles is paused while large programs are built."""

import gc
import itertools
import threading

import numpy as np
import pytest

from dpexec.engine.core import memory
from dpexec.engine.core.memory import _Counted, count_memory, free_unreachable, no_cycles_sought
from tests.waiting import until


@pytest.fixture(autouse=True)
def nobody_compiles():
    """Threads that tests before have left may be compiling, with the search off."""
    until(lambda: not memory._paused)
    assert gc.isenabled(), "a test before has turned it off for good"


def test_search_goes_on_afterwards_even_after_an_error():
    with no_cycles_sought():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_cycles_sought():
        raise KeyError
    assert gc.isenabled()


def test_search_is_off_until_the_last_thread_has_left():
    first, second = no_cycles_sought(), no_cycles_sought()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_search_that_was_off_stays_off():
    gc.disable()
    try:
        with no_cycles_sought():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.fixture
def thawed(monkeypatch):
    """Nothing is frozen, as in a process without tests."""
    monkeypatch.setattr(memory, "_frozen", threading.Event())
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.collect()  # frozen garbage, such as engines of tests before, would stay for ever
        gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_was_made_counts_as_old():
    with no_cycles_sought():
        made = [[] for _ in range(5000)]
    assert gc.get_count()[0] < len(made)
    numbers = {*map(id, made)}  # of the oldest, which may be millions, no set is made
    assert sum(id(item) in numbers for item in gc.get_objects(generation=2)) == len(made)
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_what_others_froze_stays_frozen_and_is_counted_once(monkeypatch):
    gc.freeze()
    try:
        with no_cycles_sought():
            pass
        with monkeypatch.context() as patch, no_cycles_sought():
            patch.setattr(gc, "get_freeze_count", lambda: pytest.fail("counted again"))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


class Engine:
    """Something large that only Python's search for cycles frees."""

    def __init__(self, nbytes):
        self.me = self
        self.block = count_memory(np.empty(nbytes, np.uint8), nbytes)


def test_garbage_is_freed_when_memory_has_doubled(monkeypatch):
    counted = _Counted()
    monkeypatch.setattr(memory, "_counted", counted)
    monkeypatch.setattr(memory, "_LEAST_SOUGHT", 4000)
    counted.limit = 4000
    gc.disable()  # it would find them by chance
    try:
        kept = [Engine(1000) for _ in range(3)]
        for _ in range(100):
            Engine(1000)
            assert counted.nbytes <= 2 * 4000
        del kept
        gc.collect()
    finally:
        gc.enable()
    assert counted.nbytes == 0


def test_engines_that_are_left_are_freed_if_they_are_large_or_many(monkeypatch):
    """Few small ones are not worth a search, but each may hold descriptors."""
    counted = _Counted()
    monkeypatch.setattr(memory, "_counted", counted)
    monkeypatch.setattr(memory, "_WORTH_IT", 4000)
    monkeypatch.setattr(memory, "_left", itertools.count(1))
    gc.disable()
    try:
        left = []
        for _ in range(memory._FEW + 1):
            Engine(10)
            free_unreachable()
            left.append(counted.nbytes)
        Engine(5000)
        free_unreachable()
    finally:
        gc.enable()
    assert left == [10 * (number % memory._FEW) for number in range(1, memory._FEW + 2)]
    assert counted.nbytes == 0
