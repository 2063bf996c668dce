"""Waits for the results of other threads and processes."""

import threading
import time


def until(condition, seconds=30.0, pause=0.02):
    """What a condition gives as soon as it is true.

    Args:
        condition: asked again and again.
        seconds: how long at most.
        pause: how long after each time.

    Raises:
        AssertionError: it did not become true in that time.
    """
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"did not come true within {seconds} s: {condition}"
        time.sleep(pause)
    return found


def started_since(before):
    """The threads that are there and were not before: some of earlier tests may end meanwhile.

    Args:
        before: what ``threading.enumerate()`` gave.
    """
    return set(threading.enumerate()).difference(before)
