"""Checks that tests of the live view leave no watchers behind."""

import gc

import pytest

from dpexec.dashboard.hub import HUB
from dpexec.engine.trace import live
from tests.waiting import until


@pytest.fixture(autouse=True)
def _nobody_watches():
    if live.watchers():
        gc.collect()  # engines that trained on the clusters of other tests
    before = live.watchers()
    yield

    def nobody_watches():
        gc.collect()
        return not live.watchers()

    if before or not live.watchers() or _becomes_true(nobody_watches):
        return
    # Now and then, after a run of all tests, something else in this process holds the engine for
    # longer. The next test begins without it.
    HUB._joined.clear()
    live.remove(HUB)


def _becomes_true(condition):
    """Whether it does so soon: the last report may be half a second away."""
    try:
        return until(condition, seconds=10.0, pause=0.25)
    except AssertionError:
        return False
