"""State of the environment that tests must not depend on, and must not leave behind."""

import collections
import contextlib
import gc
import os
import random
import signal
from pathlib import Path
from types import SimpleNamespace

import dask.array  # noqa: F401  its slices leave the search for cycles as it was at this import
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

import dpexec as fluid
from dpexec.dashboard.hub import HUB
from dpexec.engine.run import shards
from dpexec.engine.trace import live
from tests.rewriting import rewrite_ahead
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
# Hypothesis also draws constants of the modules that are loaded. Which are depends on the tests
# before, and to parse all of them takes each process of tests 2 s, and 6 s in a fresh clone.
providers._get_local_constants = lambda: providers._local_constants

HERE = Path(__file__).parent
LONGEST = [  # take 10 s or more; files that wait stand among files that compute
    "distributed/test_parted.py",
    "engine/kernels/test_lowerings.py",
    "distributed/test_chaos.py",
    "parity/test_layer_values.py",
    "distributed/test_faults.py",
    "distributed/test_same_bits.py",
    "distributed/test_hosts.py",
    "test_notebooks.py",
    "distributed/test_open_runs.py",
    "onnx/loading/test_backend.py",
    "engine/kernels/test_compiling.py",
    "engine/kernels/test_together.py",
    "engine/ops/test_operand_accuracy.py",
    "distributed/test_epochs.py",
    "engine/passes/test_auto_fusion.py",
    "distributed/test_adaptive.py",
    "engine/run/test_every_optimizer.py",
    "dashboard/test_scheduler.py",
    "engine/formats/test_wire.py",
    "commands/test_launch.py",
    "distributed/test_gpus.py",
    "test_benchmarks.py",
    "engine/run/test_random_programs.py",
    "checkpoint/test_checkpoints.py",
    "engine/run/test_without_asserts.py",
    "viz/test_browser.py",
    "viz/test_main_paths.py",
    "distributed/test_lifetime.py",
    "distributed/test_several_losses.py",
    "distributed/test_divided.py",
    "parity/test_training.py",
    "distributed/test_resident.py",
    "engine/autodiff/test_recompute.py",
    "distributed/test_recovery.py",
    "distributed/test_gang.py",
    "parity/test_sequence_programs.py",
    "distributed/test_kept_values.py",
    "distributed/test_nccl.py",
    "engine/ops/test_lists.py",
    "engine/cluster/test_distributed.py",
    "engine/compile/bindings/test_step.py",
    "distributed/test_idle.py",
    "sklearn/test_estimators.py",
    "reading/test_decorators.py",
    "sklearn/test_collections.py",
    "engine/exchange/test_reception.py",
    "test_guides.py",
    "dashboard/test_server.py",
    "viz/test_page_controls.py",
    "distributed/test_feeds.py",
    "distributed/test_sizes.py",
    "engine/compile/regions/test_sequences.py",
    "engine/gpu/test_training.py",
    "engine/dask/test_waiting.py",
    "engine/kernels/gpu/test_epilogues.py",
    "engine/passes/test_switches.py",
    "engine/passes/test_every_pass.py",
    "parity/test_sparse_training.py",
    "viz/test_what_if.py",
]
"""These come first, or one process would still run one of them when the others are done."""

IN_REAL_TIME = [
    "commands/test_launch.py",
    "dashboard",
    "distributed",
    "engine/cluster",
    "engine/exchange",
    "engine/run/trainers",
    "test_guides.py",
    "test_benchmarks.py",
    "test_notebooks.py",
    "viz/test_browser.py",
    "viz/test_causes.py",
    "viz/test_main_paths.py",
    "viz/test_other_processes.py",
    "viz/test_tune.py",
]
"""Their tests wait for other processes, some of which must answer within seconds, or time steps.
Beside other tests one may be late: what fails there runs once more, and the summary counts it as a
rerun."""


def pytest_configure(config):
    """Share the rewriting of assertions with other processes."""
    rewrite_ahead(config)


def pytest_terminal_summary(terminalreporter):
    """Say why tests ran once more: a test that fails now and then may have a reason."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"ran once more: {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Where processes share the tests, files that take long come first, then those with many."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    late = [HERE / name for name in IN_REAL_TIME]
    for item in items:
        if any(item.path.is_relative_to(path) for path in late):
            item.add_marker(pytest.mark.flaky(reruns=1))
    place = {HERE / name: number for number, name in enumerate(LONGEST)}
    many = collections.Counter(item.path for item in items)
    items.sort(key=lambda item: (place.get(item.path, len(place)), -many[item.path]))


def pytest_collectstart():
    """Until all tests are known nobody looks for cycles: what collecting makes stays."""
    gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """The tests themselves are no garbage: without them, a search for cycles takes no 0.5 s.

    Compiling a program makes many objects: with Python's own thresholds a fifth of the processor
    time of tests went into such searches, with these an eighth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


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
            until(gone, 2, pause=0.5)  # the last report may be half a second away
    HUB._joined.clear()  # or who never leaves would keep it watching in the tests of this module
    for watcher in live.watchers():
        live.remove(watcher)


@pytest.fixture(scope="module")
def little_to_search():
    """Searches for cycles in the tests of a module skip what tests before have left alive.

    That may be a million objects, through which each search takes tenths of a second.
    """
    gc.collect()
    gc.freeze()
