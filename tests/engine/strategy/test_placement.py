"""The choice of scheduler, number of devices and workers of a program."""

import asyncio
import logging

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, worker_client

import dpexec as fluid
from dpexec.engine.dispatch.engine import Engine
from dpexec.engine.feeds.splitting import single_feed
from dpexec.engine.strategy import placement
from dpexec.engine.strategy.placement import (
    active_client,
    collectives_in_force,
    place_replicas,
    scheduler_in_force,
)
from tests.engine.run.nets import assert_same_bits, batches, classifier, train
from tests.engine.run.parallel_do_programs import CPU, built, dense

QUIET = {"processes": False, "dashboard_address": ":0"}


@pytest.fixture
def client():
    with Client(n_workers=2, threads_per_worker=1, **QUIET) as client:
        yield client


@pytest.mark.parametrize(
    ("count", "expected"),
    [(4, "aabb"), (5, "aaabb"), (3, "aab"), (2, "ab"), (1, "a")],
)
def test_neighbours_live_on_one_worker(count, expected):
    assert place_replicas(count, ["a", "b"]) == list(expected)


def test_more_workers_than_replicas():
    assert place_replicas(2, ["a", "b", "c"]) == ["a", "b"]


def exchange(client, program, platform="linux", asked=None):
    strategy = fluid.ExecutionStrategy()
    if asked is not None:
        strategy.collectives = asked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.platform", platform)
        return collectives_in_force(strategy, client, program)


def test_gang_is_chosen_where_it_can_run_the_program(client):
    net, (divided, *_) = classifier(), built(dense(8)[0], 2)
    assert collectives_in_force(fluid.ExecutionStrategy(), "threads", net.main) is None
    assert exchange(client, net.main) == "gang"
    assert exchange(client, divided) == "tasks"
    assert exchange(client, net.main, "darwin") == "tasks"  # workers of one process
    assert [exchange(client, net.main, asked=a) for a in ("tasks", "gang")] == ["tasks", "gang"]


def test_log_says_once_why_steps_are_tasks(client, monkeypatch, caplog):
    monkeypatch.setattr(placement, "_told", set())
    caplog.set_level(logging.WARNING, "dpexec")
    divided, net = built(dense(8)[0], 2)[0], classifier()
    for _ in range(2):
        exchange(client, divided)
        exchange(client, net.main, "darwin")
        exchange(client, net.main)
        exchange(client, divided, asked="tasks")
    parallel_do, sockets = (record.getMessage() for record in caplog.records)
    assert "no gang can make them: ParallelDo divides batches" in parallel_do
    assert "no gang can make them: workers of one process" in sockets


def test_programs_that_gangs_refuse_run_as_tasks(client):
    build, feed = dense(13)
    main, startup, loss, _ = built(build, 2)
    found = {}
    for scheduler in ("threads", client):
        scope, strategy = fluid.Scope(), fluid.ExecutionStrategy()
        strategy.scheduler = scheduler
        fluid.Executor(CPU).run(startup, scope=scope)
        engine = Engine(main, [CPU], scope, execution_strategy=strategy)
        feeds = single_feed(main.global_block(), feed)
        losses = [engine.run([feeds], [loss.name])[0].tobytes() for _ in range(3)]
        found[str(scheduler)] = losses
    one, other = found.values()
    assert one == other


def test_gang_that_was_chosen_has_the_bits_of_threads(client):
    run = train(classifier(), batches(3), 2, scheduler=client)
    assert_same_bits(run, train(classifier(), batches(3), 2))
    assert type(run.compiled._engine._cluster._runner).__name__ == "GangRunner"


def test_without_a_client_there_are_threads(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "3")
    assert scheduler_in_force() == "threads" and len(fluid.cpu_places()) == 3
    with pytest.raises(RuntimeError, match=r"create a dask\.distributed\.Client"):
        scheduler_in_force("distributed")


def test_active_client_is_used_unless_something_else_is_asked_for(client):
    assert scheduler_in_force() is client
    assert scheduler_in_force("distributed") is client
    assert scheduler_in_force("threads") == "threads"
    with dask.config.set(scheduler="single-threaded"):
        assert scheduler_in_force() == "sync"


def test_functions_of_dasks_schedulers_are_known_as_their_names_are(client):
    for named in dask.get, "sync", "Synchronous":
        with dask.config.set(scheduler=named):
            assert scheduler_in_force() == "sync"
    for named in dask.threaded.get, "threading":
        with dask.config.set(scheduler=named):
            assert scheduler_in_force() == "threads"
    with dask.config.set(scheduler=client.get):
        assert scheduler_in_force() is client


def test_scheduler_that_dask_does_not_know_is_an_error():
    with dask.config.set(scheduler="thread"):
        with pytest.raises(ValueError, match=r"scheduler='thread' of dask\.config .* threads"):
            scheduler_in_force()
        assert scheduler_in_force("threads") == "threads"


def test_client_that_is_not_active_is_not_used():
    with Client(n_workers=1, set_as_default=False, **QUIET) as client:
        assert scheduler_in_force() == "threads"
        assert scheduler_in_force(client) is client


def test_asynchronous_client_is_refused():
    async def ask():
        async with Client(n_workers=0, asynchronous=True, **QUIET) as client:
            for scheduler in None, "distributed", client:
                with pytest.raises(RuntimeError, match="without asynchronous=True"):
                    scheduler_in_force(scheduler)

    asyncio.run(ask())


def test_threads_run_beside_an_asynchronous_client():
    async def ask():
        async with Client(n_workers=0, asynchronous=True, **QUIET) as client:
            assert await asyncio.to_thread(scheduler_in_force) is client

    asyncio.run(ask())


def test_inside_of_a_dask_task_there_is_no_client(client):
    assert client.submit(active_client).result() is None


def _scheduler_beside_a_client():
    with worker_client():  # becomes the scheduler of dask.config in the worker's process
        return scheduler_in_force()


def test_inside_of_a_dask_task_threads_run_steps(client):
    for task in _scheduler_beside_a_client, scheduler_in_force:
        assert client.submit(task, pure=False).result() == "threads"


@pytest.mark.parametrize(("number", "expected"), [(None, 2), ("2", 4)])
def test_devices_of_a_cluster(client, monkeypatch, number, expected):
    monkeypatch.delenv("CPU_NUM", raising=False)
    if number is not None:
        monkeypatch.setenv("CPU_NUM", number)
    assert len(fluid.cpu_places()) == expected
    assert len(fluid.cpu_places(7)) == 7
    net = classifier()
    with fluid.scope_guard(fluid.Scope()):
        fluid.Executor(fluid.CPUPlace()).run(net.startup)
        pe = fluid.ParallelExecutor(False, loss_name=net.loss.name, main_program=net.main)
        (loss,) = pe.run(fetch_list=[net.loss], feed=batches(1)[0])
    assert pe.device_count == len(loss) == expected
    homes = pe._compiled_program._engine._cluster.address
    assert homes == sorted(homes) and len(set(homes)) == 2


def test_cluster_without_workers_is_an_error():
    with (
        LocalCluster(n_workers=0, **QUIET) as cluster,
        Client(cluster),
        pytest.raises(RuntimeError, match="has no workers"),
    ):
        fluid.cpu_places()


def test_unchanged_script_trains_on_the_cluster_with_the_bits_of_threads(client):
    net, feeds = classifier(fluid.optimizer.Adam(0.01)), batches(3)
    expected = train(net, feeds, 2)
    with fluid.scope_guard(fluid.Scope()):
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(net.startup)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(net.loss.name)
        losses = [executor.run(compiled, feed, [net.loss])[0] for feed in feeds]
    assert compiled._engine.scheduler is client
    np.testing.assert_array_equal(losses, expected.losses)


def test_replicas_that_share_a_worker(client):
    net, feeds = classifier(fluid.optimizer.Adam(0.01), dropout=0.2), batches(3, rows=11)
    assert_same_bits(train(net, feeds, 4, scheduler=client), train(net, feeds, 4))
