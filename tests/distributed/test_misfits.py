"""Training on clusters where some workers, or all, cannot take replicas."""

import logging

import pytest

from dpexec.engine.cluster.worker import state
from dpexec.engine.core.errors import ClusterError
from dpexec.engine.dask import fitness, installed
from dpexec.engine.strategy.placement import workers_of
from tests.distributed.nets import NETS
from tests.engine.run.nets import assert_same_bits, train

_setup = state.setup


def _lack_a_package(*_):
    raise ModuleNotFoundError("No module named 'fsspec'")


def _let(lacks):
    state.setup = _lack_a_package if lacks else _setup


def test_a_worker_that_lacks_a_package_gets_no_replicas(pair, expected, caplog):
    caplog.set_level(logging.WARNING, "dpexec")
    worker = min(pair.nthreads())
    pair.run(_let, True, workers=[worker])
    try:
        run = train(*NETS["mlp"](), 2, scheduler=pair)
        assert_same_bits(run, expected("mlp", 2))
    finally:
        pair.run(_let, False)
    why = "cannot take replicas (ModuleNotFoundError: No module named 'fsspec')"
    assert f"worker {worker} {why}" in caplog.messages


def test_all_workers_lack_a_package(pair):
    pair.run(_let, True)
    try:
        with pytest.raises(ClusterError, match=r"no worker can take replicas: worker tcp:.*fsspec"):
            train(*NETS["mlp"](), 2, scheduler=pair)
    finally:
        pair.run(_let, False)


def test_all_workers_have_another_dpexec(pair, monkeypatch):
    version = installed.installed()["dpexec"]
    found = installed.installed() | {"dpexec": "9.0"}
    monkeypatch.setattr(installed, "installed", lambda: found)
    monkeypatch.setattr(fitness, "_known", type(fitness._known)())
    monkeypatch.setattr(fitness, "_check_scheduler", lambda *_: None)
    with pytest.raises(ClusterError) as with_places:
        train(*NETS["mlp"](), 2, scheduler=pair)
    with pytest.raises(ClusterError) as without:
        workers_of(pair)
    for worker in pair.nthreads():
        why = f"worker {worker} has dpexec {version}; install the client's there, dpexec 9.0, and"
        assert why in str(with_places.value)
        assert why in str(without.value)
