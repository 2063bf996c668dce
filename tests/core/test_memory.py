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
