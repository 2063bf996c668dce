"""What no test may find, and none may leave to others."""

import contextlib
import gc

import pytest
from hypothesis import HealthCheck, settings

import dpexec as fluid
from dpexec.trace import live
from tests.waiting import until

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # machines may be slow; only what a test asserts decides


@pytest.fixture(autouse=True)
def fresh_programs():
    """Every test builds into programs of its own, with names that start over, in its own scope."""
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with fluid.unique_name.guard(), programs, fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(autouse=True, scope="module")
def nobody_watches():
    """Profilers, pages and what else watched the tests of other modules do not watch these."""

    def gone():
        gc.collect()  # pages of clusters go with the engines that trained there
        return not live.watchers()

    if live.watchers():
        with contextlib.suppress(AssertionError):  # what a failed test shows keeps its engine
            until(gone, 2)  # the last report may be half a second away
    for watcher in live.watchers():
        live.remove(watcher)
