"""What no test may find, and none may leave to others."""

import gc

import pytest

import dpexec as fluid
from dpexec.trace import live
from tests.waiting import until


@pytest.fixture(autouse=True)
def fresh_programs():
    """Every test builds into programs of its own, with names that start over, in its own scope."""
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with fluid.unique_name.guard(), programs, fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(autouse=True, scope="module")
def nobody_watches():
    """Profilers, pages and what else watches all engines go with the tests that opened them."""
    yield

    def gone():
        gc.collect()  # pages of clusters go with the engines that trained there
        return not live.watchers()

    if live.watchers():
        until(gone, 5)  # the last report may be half a second away
