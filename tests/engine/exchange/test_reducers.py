"""Sums of a gang over sockets: the bits of a sum in the order of replicas, each value sent once."""

import itertools
import socket
import threading

import numpy as np
import pytest

from dpexec.engine.compile.regions.env import Env
from dpexec.engine.core.reductions import SUM
from dpexec.engine.exchange import chain
from dpexec.engine.exchange.buckets import Bucket, Sum
from dpexec.engine.exchange.chain import Chained, sends_less
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.divided import DividedByWire
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.reducers import reducer_of
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.wire import Tag

SHAPES = [(300, 41), (7,), (1000, 16)]


def groups_of(devices):
    """Connected members of a gang that do not share memory."""
    members = [Member(f"tcp://{i}", tuple(d), "", "", None) for i, d in enumerate(devices)]
    channels = [{} for _ in members]
    for one, other in itertools.combinations(range(len(members)), 2):
        ends = socket.socketpair()
        channels[one][other] = Channel(ends[0], members[other].name)
        channels[other][one] = Channel(ends[1], members[one].name)
    return [Group(members, rank, found, 5.0) for rank, found in enumerate(channels)]


def bucket_of(number, sources=None):
    everybody = tuple(range(number))
    return Bucket(
        3,
        "all_reduce of some",
        tuple(
            Sum(f"g{i}", sources or everybody, f"g{i}", everybody, np.dtype("f4"), shape, None, SUM)
            for i, shape in enumerate(SHAPES)
        ),
    )


def add_up(groups, bucket, envs):
    def work(group):
        reducer_of(group, bucket).run(envs, Tag(0, bucket.number, bucket.text))

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        group.close()


def some_envs(number):
    rng = np.random.default_rng(5)
    envs = [Env() for _ in range(number)]
    for env in envs:
        env.update((f"g{i}", rng.normal(size=s).astype("f4")) for i, s in enumerate(SHAPES))
    return envs


def assert_sums(devices, kind):
    number = sum(map(len, devices))
    envs, groups, bucket = some_envs(number), groups_of(devices), bucket_of(number)
    expected = {name: sum((env[name] for env in envs[1:]), start=envs[0][name]) for name in envs[0]}
    assert all(isinstance(reducer_of(group, bucket), kind) for group in groups)
    add_up(groups, bucket, envs)
    for env, (name, value) in itertools.product(envs, expected.items()):
        np.testing.assert_array_equal(env[name], value)


@pytest.mark.parametrize("piece", [4096, 1 << 19])
@pytest.mark.parametrize(
    "devices", [[[0, 1], [2, 3]], [[0], [1, 2, 3]], [[0, 1], [2], [3, 4]], [[0, 1], [2], [3], [4]]]
)
def test_sums_go_in_the_order_of_the_replicas(devices, piece, monkeypatch):
    monkeypatch.setattr(chain, "_PIECE", piece)
    assert_sums(devices, Chained)


@pytest.mark.parametrize("devices", [[[0], [1]], [[0, 2], [1, 3]], [[0], [1], [2]]])
def test_what_members_divide_has_the_same_bits(devices):
    assert_sums(devices, DividedByWire)


def test_values_are_sent_once_however_many_replicas_there_are():
    envs, groups, bucket = some_envs(6), groups_of([[0, 1, 2], [3, 4, 5]]), bucket_of(6)
    add_up(groups, bucket, envs)
    nbytes = sum(total.nbytes for total in bucket.sums)
    assert all(nbytes <= group.bytes_sent < nbytes + 64 * len(SHAPES) for group in groups)


def test_other_orders_and_single_replicas_are_left_to_others():
    assert not sends_less([[0], [1]], bucket_of(2))
    assert not sends_less([[0, 2], [1, 3]], bucket_of(4))
    assert not sends_less([[0, 1], [2, 3]], bucket_of(4, sources=(1, 0, 2, 3)))
