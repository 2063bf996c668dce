"""Replicas of one worker store their common state once, and receive it once."""

import numpy as np
import pytest
from dask.sizeof import sizeof
from distributed import Client
from distributed.protocol import deserialize, serialize

import dpexec as fluid
from dpexec.engine.cluster.worker import worker as cluster_worker
from dpexec.engine.cluster.worker.exports import Exports
from tests.distributed.faults import disturbed
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Net, Reduce, assert_same_bits, batches, train


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


def with_frozen_layer():
    """A classifier whose first layer is not trained, but whose optimizer is."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x, y = fluid.data("x", [None, 8], "float32"), fluid.data("y", [None, 1], "int64")
        frozen = fluid.ParamAttr(name="frozen", trainable=False)
        hidden = fluid.layers.fc(x, 16, act="relu", param_attr=frozen)
        prediction = fluid.layers.fc(hidden, 3, act="softmax", param_attr="trained")
        loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, y))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return Net(main, startup, loss, None, prediction)


def arrays_of(run, name):
    """The different arrays that workers of this process hold of a variable, and of how many."""
    cluster = run.compiled._engine._cluster
    here = [cluster_worker._workers[cluster.token, worker] for worker in {*cluster.address}]
    values = [versions.values[name] for found in here for versions in found.stores.values()]
    return len({id(value) for value in values}), len(values)


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_what_is_never_updated_is_there_once_per_worker_also_when_replicas_have_moved(mode):
    options = {"n_workers": 2, "threads_per_worker": 2, "processes": False}
    with Client(**options, dashboard_address=":0") as client:
        run = train(with_frozen_layer(), batches(2), 4, mode, scheduler=client)
        assert arrays_of(run, "frozen") == (2, 4)
        assert arrays_of(run, "trained") == (2 if mode == Reduce else 4, 4)

        def lose_one():
            client.retire_workers(list(client.nthreads())[:1])

        feeds = disturbed(batches(3), {2: lose_one})
        run = train(with_frozen_layer(), feeds, 4, mode, scheduler=client)
        assert arrays_of(run, "frozen") == (1, 4)
    assert_same_bits(run, train(with_frozen_layer(), batches(3), 4, mode))


def test_a_sum_for_several_replicas_travels_once():
    total = np.zeros(1 << 16)
    exports = Exports({(0, "w"): total, (1, "w"): total})
    assert total.nbytes <= sizeof(exports) < 1.1 * total.nbytes
    header, frames = serialize(exports)
    assert sum(memoryview(frame).nbytes for frame in frames) < 1.1 * total.nbytes
    came = deserialize(header, frames)
    assert came[0, "w"] is came[1, "w"]
