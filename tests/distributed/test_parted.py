"""Workers that cannot reach each other, though client and scheduler reach them all."""

import itertools
import logging
import time

import dask.array as da
import pytest
from distributed import wait

import dpexec as fluid
from dpexec.engine.cluster.client import replica_group
from tests.distributed.faults import disturbed
from tests.distributed.hosts import hosts
from tests.engine.run.nets import Reduce, assert_same_bits, batches, classifier, train

LIMIT = 3  # seconds
STEPS = 6
ROWS = 12  # of a batch

both_collectives = pytest.mark.parametrize("collectives", ["tasks", "gang"])


@pytest.fixture(scope="module")
def _network():
    with hosts(3, 1000) as made:
        yield made


@pytest.fixture
def network(_network, monkeypatch):
    """Client and hosts; whatever a test has parted is joined again."""
    monkeypatch.setattr(replica_group, "_LOOK", 0.0)
    yield _network
    for one, other in itertools.permutations(_network[1], 2):
        one.find(other)


@pytest.fixture(scope="module")
def undisturbed():
    return {devices: trained(batches(STEPS), devices, "threads") for devices in (2, 3)}


def trained(feeds, devices, scheduler, **options):
    """What training left behind where each replica has moments that no other has."""
    net = classifier(fluid.optimizer.Adam(0.01), dropout=0.2)
    options |= {"scheduler": scheduler, "collective_timeout": LIMIT}
    return train(net, feeds, devices, Reduce, **options)


def part(one, other, ways):
    for first, second in [(one, other), (other, one)][:ways]:
        first.lose(second)


def homes(run):
    """The addresses of hosts with replicas."""
    return {w.split("/")[-1].split(":")[0] for w in run.compiled._engine._cluster.address}


@both_collectives
@pytest.mark.parametrize("ways", [2, 1])
def test_replicas_move_to_workers_that_reach_each_other(
    network, undisturbed, caplog, collectives, ways
):
    client, (a, b, c) = network
    caplog.set_level(logging.WARNING, "dpexec")
    began = time.monotonic()
    faults = {2: lambda: part(a, b, ways)}
    run = trained(disturbed(batches(STEPS), faults), 2, client, collectives=collectives)
    assert time.monotonic() - began < 60
    assert_same_bits(run, undisturbed[2])
    assert homes(run) == {a.address, c.address}
    assert f"does not reach worker tcp://{b.address}" in caplog.text or (
        f"does not reach worker tcp://{a.address}" in caplog.text
    )


@both_collectives
def test_runs_begin_on_workers_that_reach_each_other(network, undisturbed, collectives):
    client, (a, b, c) = network
    part(a, b, 2)
    part(a, c, 2)
    run = trained(batches(STEPS), 2, client, collectives=collectives)
    assert_same_bits(run, undisturbed[2])
    assert homes(run) == {b.address, c.address}


@both_collectives
def test_who_is_reached_again_gets_replicas(network, undisturbed, collectives):
    client, (a, b, c) = network

    def feeds():
        yield from disturbed(batches(STEPS)[:4], {2: lambda: part(a, b, 2)})
        for host, other in itertools.permutations((a, b), 2):
            host.find(other)
        time.sleep(2 * LIMIT)  # who is left out asks the others now and then
        yield from batches(STEPS)[4:]

    run = trained(feeds(), 3, client, collectives=collectives)
    assert_same_bits(run, undisturbed[3])
    assert homes(run) == {a.address, b.address, c.address}


def held(client, host, feeds):
    """Feeds as Dask collections whose blocks lie on the worker of a host."""
    (there,) = (worker for worker in client.nthreads() if f"{host.address}:" in worker)
    found = [
        {
            name: client.persist(
                da.from_array(value, chunks=(5, *value.shape[1:]), name=False), workers=[there]
            )
            for name, value in feed.items()
        }
        for feed in feeds
    ]
    with client.as_current():
        wait([value for feed in found for value in feed.values()])
    return found


@both_collectives
def test_fed_rows_come_through_the_client_where_there_is_no_other_way(
    network, undisturbed, collectives
):
    client, (a, b, c) = network
    found = held(client, c, batches(STEPS))
    for host in (a, b):
        part(host, c, 2)
    run = trained(found, 2, client, collectives=collectives)
    assert_same_bits(run, undisturbed[2])
    assert homes(run) == {a.address, b.address}


def merged(client, one, other):
    """Feeds of blocks that are made of what two hosts hold: half of it each."""
    halves = [
        held(
            client, host, [{n: value[part] for n, value in feed.items()} for feed in batches(STEPS)]
        )
        for host, part in [(one, slice(None, ROWS // 2)), (other, slice(ROWS // 2, None))]
    ]
    return [
        {name: da.concatenate([first[name], second[name]]).rechunk({0: -1}) for name in first}
        for first, second in zip(*halves, strict=True)
    ]


def test_blocks_are_computed_where_all_they_are_made_of_is_reached(network, undisturbed, caplog):
    client, (a, _, c) = network
    caplog.set_level(logging.WARNING, "dpexec")
    found = merged(client, a, c)
    part(a, c, 2)
    assert_same_bits(trained(found, 2, client), undisturbed[2])
    assert "goes through the client" not in caplog.text


def test_blocks_that_nobody_can_compute_get_their_parts_through_the_client(
    network, undisturbed, caplog
):
    client, (a, b, c) = network
    caplog.set_level(logging.WARNING, "dpexec")
    found = merged(client, a, c)
    for one, other in itertools.combinations((a, b, c), 2):
        part(one, other, 2)
    assert_same_bits(trained(found, 2, client), undisturbed[2])
    assert "fed Dask collections are computed again, elsewhere" in caplog.text
    assert "goes through the client" in caplog.text


@both_collectives
def test_alone_if_nobody_is_reached(network, undisturbed, collectives):
    """State goes through the client where there is no other way."""
    client, (a, b, c) = network

    def part_all():
        for one, other in itertools.combinations((a, b, c), 2):
            part(one, other, 2)

    faults = {2: part_all}
    run = trained(disturbed(batches(STEPS), faults), 3, client, collectives=collectives)
    assert_same_bits(run, undisturbed[3])
    assert len(homes(run)) == 1
