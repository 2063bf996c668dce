"""Checks that tests of the live view leave no watchers behind."""

import gc

import pytest

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

    if not before and live.watchers():
        until(nobody_watches, 10, pause=0.25)  # the last report may be half a second away
