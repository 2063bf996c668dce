"""Sums that the workers of several hosts divide among themselves, as dask tasks."""

import pytest

from dpexec.engine.cluster.client import task_runner
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.compile.plans.bucket_size import Link
from tests.distributed.faults import die
from tests.distributed.nets import NETS
from tests.engine.run.nets import assert_same_bits
from tests.engine.run.nets import train as train_there


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    """Each worker is a host of its own, and only bytes take time."""
    hosts = property(lambda homes: [devices[0] for devices in homes.workers.values()])
    monkeypatch.setattr(HomeTable, "hosts", hosts)
    monkeypatch.setattr(task_runner, "link_between", lambda *_: Link(0.0, 1e9))


def train(net, feeds, devices, **options):
    return train_there(net, feeds, devices, collectives="tasks", **options)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("more", [0, 1], ids=["one replica each", "one has two"])
def test_divided_sums_have_the_same_bits(client, expected, name, more):
    devices = len(client.nthreads()) + more
    run = train(*NETS[name](), devices, scheduler=client)
    assert_same_bits(run, expected(name, devices))


def test_every_worker_takes_equally_much(three):
    net, feeds = NETS["mlp"]()
    run = train(net, feeds, 3, scheduler=three, trace=True)
    trace = run.compiled.trace
    events = [event for event in trace if event.step == trace.steps[-1]]
    gradients = sum(run.state[p.name].nbytes for p in net.main.all_parameters())
    summed, came = {}, {}
    for event in events:
        if event.kind == "collective":  # each worker makes all of them, and notes its part
            summed.setdefault(event.args["worker"], []).append(event.args["bytes"])
        if event.kind == "transfer":
            came.setdefault(event.args["worker"], []).append(event.args["bytes"])
    assert [sum(found) for found in summed.values()] == [gradients] * 3
    assert len(came) == 3
    for shares in came.values():  # two of gradients, and two of sums
        assert sum(shares) == pytest.approx(4 / 3 * gradients, rel=0.01)


def test_steps_of_a_run_flow(three):
    net, (feed, *_) = NETS["mlp"]()
    once = train(net, [feed] * 6, 3)
    run = train(net, [feed] * 2, 3, scheduler=three, num_iteration_per_run=3)
    once.losses = once.losses[2::3]
    assert_same_bits(run, once)


@pytest.mark.parametrize("action", ["CutShare", "AddShare", "JoinShares"])
def test_a_worker_that_is_lost_in_the_middle_of_a_sum_costs_nothing(
    three_mortals, expected, monkeypatch, action
):
    measured = []
    monkeypatch.setattr(
        task_runner, "link_between", lambda *_: measured.append(1) or Link(0.0, 1e9)
    )
    lost = three_mortals.addresses()[1]
    die(three_mortals, lost, f"dpexec.engine.cluster.worker.actions:{action}.run", calls=2)
    run = train(*NETS["mlp"](), 3, scheduler=three_mortals.client)
    assert_same_bits(run, expected("mlp", 3))
    assert lost not in run.compiled._engine._cluster.address
    assert len(measured) == 1  # not again while all wait for the replica to move
