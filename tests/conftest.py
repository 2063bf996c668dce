"""What no test may find, and none may leave to others."""

import contextlib
import gc
import random
import signal
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

import dpexec as fluid
from dpexec.engine.run import shards
from dpexec.engine.trace import live
from tests.waiting import until

# Tests interrupt what runs. Started in the background of a shell, they would find SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "decisive",  # machines may be slow, and only a change of the code may change what tests say
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.load_profile("decisive")


@pytest.fixture(autouse=True)
def fresh_programs():
    """Every test builds into programs of its own, with names that start over, in its own scope."""
    programs = fluid.program_guard(fluid.Program(), fluid.Program())
    with fluid.unique_name.guard(), programs, fluid.scope_guard(fluid.Scope()):
        yield


@pytest.fixture(autouse=True)
def same_draws(monkeypatch):
    """Without a seed, programs draw other numbers in every run; tests always draw the same."""
    source = SimpleNamespace(randbits=random.Random(1).getrandbits)
    monkeypatch.setattr(shards, "secrets", source)


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
