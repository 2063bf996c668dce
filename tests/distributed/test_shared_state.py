"""Replicas of one worker keep what they have in common once, and it comes to them once."""

import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client
from distributed.protocol import deserialize, serialize

from dpexec.runtime import cluster_worker
from dpexec.runtime.cluster_jobs import Exports
from tests.distributed.nets import NETS
from tests.runtime.nets import Reduce, train


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_reduce_mode_keeps_parameters_once_per_worker(collectives):
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": False}
    with Client(**options, dashboard_address=":0") as client:
        known = set(cluster_worker._workers)
        run = train(*NETS["mlp"](), 4, Reduce, scheduler=client, collectives=collectives)
        here = [found for key, found in cluster_worker._workers.items() if key not in known]
        parameters = [p.name for p in run.compiled._program.all_parameters()]
        for replicas in here:
            assert len(replicas.stores) == 2
            for step in replicas.stores[min(replicas.stores)].steps:
                first, second = (versions.at(step) for versions in replicas.stores.values())
                assert all(first[name] is second[name] for name in parameters)
    assert len(here) == 2


def test_a_sum_for_several_replicas_travels_once():
    total = np.zeros(1 << 16)
    exports = Exports({(0, "w"): total, (1, "w"): total})
    assert total.nbytes <= sizeof(exports) < 1.1 * total.nbytes
    header, frames = serialize(exports)
    assert sum(memoryview(frame).nbytes for frame in frames) < 1.1 * total.nbytes
    came = deserialize(header, frames)
    assert came[0, "w"] is came[1, "w"]
