"""Adaptive clusters that grow and shrink during training: replicas move, with the same bits."""

import itertools
import time

import pytest

import dpexec as fluid
from dpexec.engine.cluster.client import demand
from tests.distributed.clusters import workers
from tests.distributed.faults import disturbed
from tests.distributed.nets import NETS
from tests.engine.run.nets import (
    AllReduce,
    Reduce,
    Run,
    assert_same_bits,
    persistables,
    strategies,
    train,
)
from tests.waiting import until

REPLICAS = 4


@pytest.mark.parametrize(("mode", "collectives"), [(Reduce, "auto"), (AllReduce, "tasks")], ids=str)
def test_replicas_follow_from_one_worker_to_four_to_two(mode, collectives):
    net, feeds = NETS["images"](5)
    fed, losses, scope, exe = [], [], fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    batches = itertools.cycle(feeds)

    def step():
        fed.append(next(batches))
        losses.extend(exe.run(compiled, feed=fed[-1], fetch_list=[net.loss], scope=scope))
        return set(compiled._engine._cluster.address)

    with workers(1, restart=True) as found:
        how = strategies(mode, scheduler=found.client, collectives=collectives)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, *how, places=fluid.cpu_places(REPLICAS)
        )
        exe.run(net.startup, scope=scope)
        assert len(step()) == 1
        for count in (4, 2):
            found.cluster.adapt(minimum=count, maximum=count, interval="0.2s", wait_count=1)
            deadline = time.monotonic() + 60
            while len(step()) != count:
                assert time.monotonic() < deadline
        step()
        state = persistables(net.main, scope)
        found.cluster.adapt(minimum=0, maximum=0)
    assert_same_bits(Run(losses, state, compiled, scope), train(net, fed, REPLICAS))


@pytest.mark.parametrize("collectives", ["auto", "tasks"])
def test_clusters_grow_for_replicas_and_keep_what_has_state(monkeypatch, collectives):
    """A gang is one task per worker, for which dask alone would start no worker."""
    monkeypatch.setattr(demand, "_PAUSE", 0.5)  # the scheduler is one of this process
    net, feeds = NETS["images"](5)
    fed, losses, scope, exe = [], [], fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    batches = itertools.cycle(feeds)

    def step():
        fed.append(next(batches))
        losses.extend(exe.run(compiled, feed=fed[-1], fetch_list=[net.loss], scope=scope))
        return set(compiled._engine._cluster.address)

    with workers(1, restart=True) as found:
        how = strategies(Reduce, scheduler=found.client, collectives=collectives)
        compiled = fluid.CompiledProgram(net.main).with_data_parallel(
            net.loss.name, *how, places=fluid.cpu_places(3)
        )
        exe.run(net.startup, scope=scope)
        found.cluster.adapt(minimum=0, maximum=3, interval="0.2s", wait_count=2)
        until(lambda: len(step()) == 3)
        until(lambda: len(found.client.nthreads()) == 1)
        step()
        state = persistables(net.main, scope)
        found.cluster.adapt(minimum=0, maximum=0)
    assert_same_bits(Run(losses, state, compiled, scope), train(net, fed, 3))


@pytest.mark.parametrize("collectives", ["auto", "tasks"])
def test_workers_that_mirror_each_other_may_be_closed_at_once(three_mortals, collectives):
    """They hand on what they have: optimizer state that nobody else has."""
    net, feeds = NETS["images"](6)
    found = three_mortals
    gone = found.addresses()[:2]

    def close_two():
        found.client.retire_workers(gone)

    options = {"scheduler": found.client, "collectives": collectives}
    run = train(net, disturbed(feeds, {3: close_two}), 3, Reduce, **options)
    assert_same_bits(run, train(net, feeds, 3))
    assert not set(gone) & set(run.compiled._engine._cluster.address)


@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize(("mode", "collectives"), [(Reduce, "auto"), (AllReduce, "tasks")], ids=str)
def test_all_workers_of_a_run_may_be_closed_once_others_are_there(mode, collectives, first):
    """The others have taken no part yet: they keep everything until replicas move."""
    net, feeds = NETS["images"](4)
    with workers(first, restart=True) as found:

        def replace_all():
            before = found.addresses()
            found.cluster.scale(first + 1)
            found.wait_for(first + 1)
            found.client.retire_workers(before)
            until(lambda: not set(before) & set(found.client.nthreads()))

        options = {"scheduler": found.client, "collectives": collectives}
        run = train(net, disturbed(feeds, {2: replace_all}), 3, mode, **options)
        found.cluster.adapt(minimum=0, maximum=0)
    assert_same_bits(run, train(net, feeds, 3))
