"""Tests of the live view leave nobody watching behind."""

import gc
import time

import pytest

from dpexec.trace import live


@pytest.fixture(autouse=True)
def _nobody_watches():
    if live.watchers():
        gc.collect()  # engines that trained on the clusters of other tests
    before = live.watchers()
    yield
    deadline = time.monotonic() + 2.0  # the last report may be half a second away
    while not before and live.watchers():
        assert time.monotonic() < deadline, "somebody still watches"
        gc.collect()
        time.sleep(0.02)
