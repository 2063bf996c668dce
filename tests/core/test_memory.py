"""The search for cycles rests while something large is built."""

import gc

import pytest

from dpexec.core.memory import no_cycles_sought


def test_search_goes_on_afterwards_even_after_an_error():
    with no_cycles_sought():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(KeyError), no_cycles_sought():
        raise KeyError
    assert gc.isenabled()


def test_search_that_was_off_stays_off():
    gc.disable()
    try:
        with no_cycles_sought():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_made_counts_as_old():
    with no_cycles_sought():
        made = [[] for _ in range(5000)]
    assert gc.get_count()[0] < len(made)
    oldest = {id(item) for item in gc.get_objects(generation=2)}
    assert oldest >= {id(item) for item in made}
    assert gc.get_freeze_count() == 0
