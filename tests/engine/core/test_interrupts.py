"""Ctrl-C inside a block that must not be interrupted takes effect at its end."""

import signal
import threading

import pytest

from dpexec.engine.core.interrupts import Uninterrupted


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_interrupts_come_through_at_the_end_of_the_outermost_block():
    done = []

    def work():
        with Uninterrupted():
            with Uninterrupted():
                press_ctrl_c()
                press_ctrl_c()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_of_the_block_is_seen_behind_the_interrupt():
    def fail():
        with Uninterrupted():
            press_ctrl_c()
            raise ValueError("its own")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_a_handler_of_the_user_is_called_once_at_the_end():
    told = []
    before = signal.signal(signal.SIGINT, lambda number, frame: told.append((number, frame)))
    try:
        with Uninterrupted():
            press_ctrl_c()
            press_ctrl_c()
            assert not told
        ((number, frame),) = told
        assert number == signal.SIGINT
        assert frame is not None
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_nothing_changes_where_nothing_is_raised(handler):
    before = signal.signal(signal.SIGINT, handler)
    try:
        with Uninterrupted():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_are_never_interrupted():
    seen = []

    def look():
        with Uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
