"""Checks that tests of the live view leave no watchers behind."""

import gc
import sys

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

    failed = getattr(sys, "last_value", None) is not None  # its traceback holds what trained
    if not before and not failed and live.watchers():
        until(nobody_watches, pause=0.25)  # the last report may be half a second away
