"""Training between hosts over slow, narrow links (network namespaces): bytes, waits, losses."""

import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

import dpexec as fluid
from dpexec.engine.cluster.client.links import link_between
from dpexec.engine.cluster.home_table import HomeTable
from dpexec.engine.dask.waiting import Contact
from tests.distributed.hosts import hosts, remove_forgotten
from tests.engine.run.nets import assert_same_bits, batches, classifier, train, word_batches, words
from tests.waiting import until

ROOT = Path(__file__).parents[2]
STEPS = 10
MEGABITS, FEW_MEGABITS = 400, 4


@pytest.fixture(scope="module")
def network():
    with hosts(2, MEGABITS, delay=0.005) as made:
        yield made


@pytest.fixture(scope="module")
def narrow():
    """Links that are slower than the busiest processor: what they take is what is seen."""
    with hosts(2, FEW_MEGABITS, delay=0.02) as (client, _):
        yield client


def wide():
    """A classifier whose gradients take 1 MB."""
    return classifier(fluid.optimizer.Momentum(0.1, 0.9), sizes=(8, 500, 500, 3))


def gradient_bytes(net):
    return 4 * sum(np.prod(param.shape) for param in net.main.all_parameters())


def traffic(network, net, feed):
    """Bytes per step that came to the hosts, and what training left behind."""
    client, made = network
    options = {"scheduler": client, "collectives": "gang", "num_iteration_per_run": STEPS}
    train(net, [feed], 2, **options)  # workers have compiled it
    before = [host.received for host in made]
    run = train(net, [feed] * 2, 2, **options)
    return [(h.received - at) / (2 * STEPS) for h, at in zip(made, before, strict=True)], run


FORGETFUL = """
from tests.distributed import hosts
from tests.distributed.forked_dask import Forked
network, net = hosts.take_network()
hosts.Host(network, net, 0, 400, 0.0).build()
print(network, Forked("scheduler", "--port", "0", "--no-dashboard").pid, flush=True)
input()
"""


def test_networks_of_killed_processes_are_removed_by_the_next(network):
    _, (first, *_) = network
    command, pipes = [sys.executable, "-c", FORGETFUL], {"stdin": PIPE, "stdout": PIPE}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as owner:
        left, scheduler = owner.stdout.readline().decode().split()
        owner.kill()
    until(lambda: not Path(f"/proc/{scheduler}").exists())
    assert Path(f"/run/netns/{left}h0").exists()
    remove_forgotten()
    assert not Path(f"/run/netns/{left}h0").exists()
    assert not Path(f"/sys/class/net/{left}").exists()
    assert Path(f"/run/netns/{first.name}").exists()


def test_hosts_without_a_network_are_removed(network):
    """One whose process was killed while the system made it."""
    _, (first, *_) = network
    left = Path("/run/netns/dpx999h0")  # no network has so great a number
    subprocess.run(["ip", "netns", "add", left.name], check=True)
    remove_forgotten()
    assert not left.exists()
    assert Path(f"/run/netns/{first.name}").exists()


def test_dense_gradients_take_as_many_bytes_as_computed(network):
    net, (feed,) = wide(), batches(1)
    received, run = traffic(network, net, feed)
    computed = gradient_bytes(net)  # half of the other's gradient, and the other half of the sum
    state = 2 * computed / (2 * STEPS)  # parameters and velocities come once
    for found in received:
        assert computed + state < found < 1.15 * (computed + state)
    assert np.array_equal(run.losses[-1], train(net, [feed] * 2 * STEPS, 2).losses[-1])


def test_sparse_gradients_take_few(network):
    (feed,) = word_batches(1, vocabulary=20_000)
    sparse, _ = traffic(network, words(vocabulary=20_000), feed)
    table = 20_000 * 5 * 4
    assert max(sparse) < table / 4  # of which most are parameters, which come once


def test_the_speed_of_links_is_measured(narrow):
    contact = Contact(narrow, limit=10)
    link = link_between(contact, HomeTable(contact.workers()))
    # a quarter of the bytes that are sent may pass at once, if nothing passed before
    assert 0.3 * FEW_MEGABITS < link.bandwidth * 8e-6 < 1.4 * FEW_MEGABITS


def test_hosts_divide_sums_whose_bytes_take_longer_than_more_tasks(network):
    client, _ = network
    net, feeds = wide(), batches(2)
    run = train(net, feeds, 2, scheduler=client, collectives="tasks", trace=True)
    assert_same_bits(run, train(net, feeds, 2))
    came = {key for e in run.compiled.trace if e.kind == "transfer" for key in e.args["keys"]}
    assert {name.partition("-")[0] for name in came} == {
        "forward_backward_cut_share0_dev1",
        "forward_backward_cut_share1_dev0",
        "reduce_scatter_dev0",
        "reduce_scatter_dev1",
    }


def test_who_waits_long_for_a_link_is_not_silent(narrow):
    """Each transfer takes longer than a silent worker is waited for."""
    limit = 1
    sizes = {"tasks": (8, 360, 360, 3), "gang": (8, 500, 500, 3)}  # gangs send halves
    for collectives, of_net in sizes.items():
        net, feeds = classifier(sizes=of_net), batches(1)
        parts = 2 if collectives == "gang" else 1
        assert gradient_bytes(net) / parts * 8 > limit * FEW_MEGABITS * 1e6
        options = {"collectives": collectives, "collective_timeout": limit}
        run = train(net, feeds, 2, scheduler=narrow, **options)
        assert_same_bits(run, train(net, feeds, 2))
        assert run.compiled._engine._cluster.group.epoch.number == 0  # nobody was lost


def test_cut_link_loses_nothing():
    net, feeds, mib = wide(), batches(6), 1 << 20
    with hosts(2, MEGABITS, delay=0.005) as (client, (host, other)):

        def cut() -> None:
            until(lambda: other.received > 12 * mib, 60)  # the state, and some steps
            other.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        options = {"collectives": "gang", "collective_timeout": 3, "num_iteration_per_run": STEPS}
        run = train(net, feeds, 2, scheduler=client, **options)
        cutting.join()
        homes = run.compiled._engine._cluster.address
    assert [home.split(":")[1] for home in homes] == [f"//{host.address}"] * 2
    expected = train(net, [feed for feed in feeds for _ in range(STEPS)], 2)
    expected.losses = expected.losses[STEPS - 1 :: STEPS]
    assert_same_bits(run, expected)
