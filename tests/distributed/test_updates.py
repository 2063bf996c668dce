"""Updates on workers: several at a time, and of several programs on one scope."""

import time

import numpy as np
import pytest
from distributed import Client

import dpexec as fluid
from dpexec.engine.cluster.worker.versions import Versions
from tests.distributed.nets import NETS
from tests.engine.run.nets import AllReduce, Reduce, assert_same_bits, train


@pytest.fixture(scope="module")
def client():
    options = {"processes": False, "dashboard_address": ":0", "set_as_default": False}
    with Client(n_workers=2, threads_per_worker=2, **options) as client:
        yield client


@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
def test_updates_that_begin_together_have_the_same_copies(client, expected, mode, monkeypatch):
    copied = Versions.copied

    def slow(self, name, value):
        time.sleep(0.002)
        return copied(self, name, value)

    monkeypatch.setattr(Versions, "copied", slow)
    options = {"scheduler": client, "collectives": "tasks", "task_granularity": "op"}
    run = train(*NETS["mlp"](), 2, mode, **options)
    assert_same_bits(run, expected("mlp", 2))


def trained(scheduler, mode, order, collectives):
    """What programs of so many replicas compute that train one after another, and parameters."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 3
    with fluid.unique_name.guard(), fluid.program_guard(main, startup):
        x = fluid.data("x", [None, 2])
        loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 3, param_attr="w")))
        fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    executor.run(startup, scope=scope)
    build, execution = fluid.BuildStrategy(), fluid.ExecutionStrategy()
    build.reduce_strategy = mode
    execution.scheduler, execution.collectives = scheduler, collectives
    programs = {
        count: fluid.CompiledProgram(main).with_data_parallel(
            loss.name, build, execution, places=[fluid.CPUPlace()] * count
        )
        for count in set(order) - {0}
    }
    feed = {"x": np.arange(12, dtype="float32").reshape(6, 2) / 10}
    found = []
    for count in order:
        program = programs.get(count, main)
        found += executor.run(program, feed=feed, fetch_list=[loss], scope=scope)
    return [*found, np.array(scope.find_var("w").get_tensor())]


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
@pytest.mark.parametrize("mode", [AllReduce, Reduce], ids=str)
@pytest.mark.parametrize("order", [(3, 2, 3, 2, 2, 3), (0, 2, 3, 0, 2, 3)], ids=str)
def test_programs_on_one_scope_see_the_updates_of_each_other(client, mode, order, collectives):
    for found, wanted in zip(
        trained(client, mode, order, collectives),
        trained("threads", mode, order, collectives),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wanted)
