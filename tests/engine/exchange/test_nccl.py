"""When members of a gang use NCCL, and how they notice that a member is gone."""

import re
import socket
import threading
from dataclasses import replace

import pytest

from dpexec.engine.core.places import CUDAPlace
from dpexec.engine.exchange import nccl
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.gpus import Gpu, how_exchanged, why_not_nccl
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.wire import GangError, Tag, exchange, look_after, say_goodbye
from tests.fakes.cupy import install
from tests.waiting import until

TAG = Tag(3, 7, "a sum")


def member(number, host="here", scheme="tcp"):
    gpu = Gpu(f"0000:0{number}:00.0", 23000)
    return Member(f"{scheme}://10.0.0.1:{number}", (number,), host, "", None, gpu=gpu)


PAIR = [member(0), member(1)]
SLOT = PAIR[0].gpu.slot


def test_gpus_of_their_own_use_nccl():
    assert why_not_nccl(PAIR) == ""
    assert how_exchanged(PAIR, "").startswith("by NCCL")


def test_equal_slots_of_different_hosts_are_different_gpus():
    assert why_not_nccl([replace(PAIR[0], host="there"), replace(PAIR[1], gpu=PAIR[0].gpu)]) == ""


@pytest.mark.parametrize(
    ("members", "why"),
    [
        (PAIR[:1], "there is one worker"),
        ([PAIR[0], replace(PAIR[1], gpu=None)], "replicas are not on GPUs"),
        ([PAIR[0], replace(PAIR[1], gpu=Gpu(SLOT, 23000))], "workers share a GPU"),
        ([PAIR[0], replace(PAIR[1], gpu=Gpu("1", 0))], "not installed at tcp://10.0.0.1:1"),
        ([PAIR[0], replace(PAIR[1], gpu=Gpu("1", 22000))], r"versions of NCCL: \[22000, 23000\]"),
        ([member(0, scheme="tls"), member(1, scheme="tls")], "does not encrypt"),
    ],
)
def test_rule(members, why):
    found = why_not_nccl(members)
    assert re.search(why, found)
    expected = "" if any(m.gpu is None for m in members) else f"through the host: {found}"
    assert how_exchanged(members, found) == expected


def test_a_flag_asks_for_the_order_of_the_replicas(monkeypatch):
    monkeypatch.setenv("FLAGS_cudnn_deterministic", "1")
    assert "FLAGS_cudnn_deterministic" in why_not_nccl(PAIR)


@pytest.fixture
def ends():
    """Both ends of a connection, the first one in a group of two."""
    ours, theirs = socket.socketpair()
    channels = {1: Channel(ours, PAIR[1].name)}
    yield Group(PAIR, 0, channels, 5.0), Channel(theirs, PAIR[0].name)
    ours.close()
    theirs.close()


def look(group):
    look_after(group.channels, lambda: group.channels, None, group.limit, TAG)


def test_watching_takes_nothing_of_what_others_send(ends):
    group, other = ends
    look(group)
    exchange({0: other}, TAG, {0: [memoryview(b"1234")]}, {}, 1.0)
    look(group)
    memory = bytearray(4)
    group.exchange(TAG, {}, {1: lambda nbytes: [memoryview(memory)]})
    assert memory == b"1234"


def test_watching_tells_why_a_member_leaves(ends):
    group, other = ends
    say_goodbye({0: other}, "worker b failed at step 3: no memory")
    with pytest.raises(GangError, match="no memory"):
        look(group)


def test_watching_tells_who_is_gone(ends):
    group, other = ends
    other.close()
    with pytest.raises(GangError, match=r"10\.0\.0\.1:1 \(replica 1\) is gone .*a sum"):
        look(group)


def test_arrays_live_until_a_call_that_has_begun_is_over(ends, monkeypatch):
    """It may enqueue work on them after everything else was aborted."""
    install(monkeypatch, 1)
    monkeypatch.setattr(nccl, "_GRACE", 0.05)
    group, _ = ends
    found, begun, go_on = nccl.Exchange(group, CUDAPlace(0)), threading.Event(), threading.Event()
    found._met, found._held = True, [object()]
    found._server.start()
    found._later(lambda: (begun.set(), go_on.wait()))
    begun.wait()
    found.close()
    assert found._held
    go_on.set()
    until(lambda: not found._held)
