"""Frames between members: members prove who they are first, and every wait has a limit."""

import contextlib
import select
import socket
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from distributed.security import Security

from dpexec.engine.exchange import rendezvous
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.rendezvous import Door
from dpexec.engine.exchange.wire import GangError, Tag, exchange, say_goodbye
from tests.certificates import security_in
from tests.waiting import started_since

TAG = Tag(3, 5, "all_reduce of w@GRAD (task 5)")
SECRET = b"s" * 32


def door(secret, scheme="tcp", security=None):
    """The door of a dask worker."""
    return Door(f"{scheme}://127.0.0.1:1", security or Security(), secret)


def doors_of(secrets, **options):
    doors = [door(secret, **options) for secret in secrets]
    return doors, [found.member([rank]) for rank, found in enumerate(doors)]


def meet(doors, members, limit=5.0):
    """All members at once, on threads; returns what each of them got."""
    found = [None] * len(doors)

    def join(rank):
        try:
            found[rank] = doors[rank].meet(members, rank, limit)
        except GangError as error:
            found[rank] = error

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(len(doors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def close(found):
    for channels in found:
        for channel in channels.values() if isinstance(channels, dict) else ():
            channel.close()


@pytest.mark.parametrize("rank", [0, 1])
def test_who_waits_for_others_stops_when_the_gang_is_given_up(rank):
    """Whether it lets others in or knocks at the door of one that is gone."""
    doors, members = doors_of([SECRET] * 2)
    doors[1 - rank].close()
    threading.Timer(0.2, doors[rank].close).start()
    began = time.monotonic()
    with pytest.raises((GangError, OSError)):
        doors[rank].meet(members, rank, 30.0)
    assert time.monotonic() - began < 10


def swap(channels, nbytes, limit=5.0):
    """Both ends send and receive a large frame at once."""
    data = [np.full(nbytes, rank, np.uint8) for rank in range(2)]
    came = [np.zeros(nbytes, np.uint8) for _ in range(2)]

    def move(rank):
        other = 1 - rank
        exchange(
            channels[rank],
            TAG,
            {other: [memoryview(data[rank][:7]), memoryview(data[rank][7:])]},
            {other: lambda _: [memoryview(came[rank])]},
            limit,
        )

    thread = threading.Thread(target=move, args=(1,))
    thread.start()
    move(0)
    thread.join()
    assert (came[0] == 1).all() and (came[1] == 0).all()


@pytest.fixture(params=["unix", "tcp"])
def host(request, monkeypatch):
    if request.param == "tcp":
        monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    return request.param


def test_large_frames_cross_each_other(host):
    found = meet(*doors_of([SECRET] * 2))
    family = socket.AF_UNIX if host == "unix" else socket.AF_INET
    assert found[0][1].sock.family == family
    swap(found, 3_000_000)
    close(found)


@pytest.mark.skipif(sys.platform != "linux", reason="others wait for every packet")
def test_a_wait_for_a_long_frame_ends_for_much_of_it_and_not_for_every_packet():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near, far = socket.create_connection(server.getsockname()), server.accept()[0]
    channel, poll = Channel(near, "far"), select.poll()
    poll.register(near, select.POLLIN)
    channel.expect(50_000)
    far.sendall(bytes(1000))
    assert not poll.poll(20)
    far.sendall(bytes(49_000))
    assert poll.poll(5000)
    left = 50_000
    while left:
        left -= channel.receive(memoryview(bytearray(left)))
    channel.expect(0)  # what comes next may be short
    far.sendall(b"x")
    assert poll.poll(5000)
    channel.receive(memoryview(bytearray(1)))
    channel.expect(50_000)
    far.close()  # whoever is gone is noticed at once
    assert poll.poll(5000)
    channel.close()


def test_short_frames_follow_long_ones(host):
    found = meet(*doors_of([SECRET] * 2))
    for nbytes in (600_000, 40, 100_000, 7):
        swap(found, nbytes)
    close(found)


def test_member_without_the_secret_is_refused(host):
    found = meet(*doors_of([SECRET, b"x" * 32]), limit=0.5)
    assert all(isinstance(error, GangError) for error in found)
    assert "127.0.0.1:1 (replica 1) did not come within 0.5 s" in str(found[0])
    assert "(replica 0) did not let us in within 0.5 s" in str(found[1])


def test_strangers_do_not_keep_members_out(monkeypatch):
    monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    doors, members = doors_of([SECRET] * 2)
    silent, loud = (socket.create_connection(members[0].tcp) for _ in range(2))
    loud.sendall(bytes(200))
    before = threading.enumerate()
    found = meet(doors, members)
    assert isinstance(found[0], dict)
    assert not started_since(before)
    for stranger in (silent, loud):
        challenge = stranger.recv(100)  # and nothing else
        assert len(challenge) <= 32
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
        stranger.close()
    close(found)


def test_nobody_comes_in_when_the_gang_is_complete(monkeypatch):
    monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    doors, members = doors_of([SECRET] * 2)
    found = meet(doors, members)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(members[0].tcp)
    close(found)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return security_in(tmp_path_factory.mktemp("tls"))


def test_tls_settings_of_dask_hold_between_hosts(tls, monkeypatch):
    monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    doors, members = doors_of([SECRET] * 2, scheme="tls", security=tls)
    found = meet(doors, members)
    assert found[0][1].sock.version().startswith("TLS")
    swap(found, 3_000_000)
    close(found)


def test_tls_worker_lets_nobody_in_who_does_not_encrypt(tls, monkeypatch):
    monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    doors = [door(SECRET, "tls", tls), door(SECRET)]
    member = doors[0].member([0])
    plain = replace(member, worker=member.worker.replace("tls:", "tcp:"))
    found = meet(doors, [plain, doors[1].member([1])], limit=0.5)
    assert all(isinstance(error, GangError) for error in found)


def channels_of(name="worker tcp://b (replica 1)"):
    here, there = socket.socketpair()
    return Channel(here, name), Channel(there, "worker tcp://a (replica 0)")


def test_silent_member_is_named_within_the_limit():
    here, there = channels_of()
    with pytest.raises(
        GangError, match=r"b \(replica 1\) did not answer for 0.2 s at step 3, all_"
    ):
        exchange({1: here}, TAG, {1: [memoryview(bytes(9))]}, {1: lambda _: []}, 0.2)
    here.close()
    there.close()


def test_lost_member_is_named_at_once():
    here, there = channels_of()
    there.close()
    with pytest.raises(GangError, match=r"b \(replica 1\) is gone .* at step 3, all_reduce of w@"):
        exchange({1: here}, TAG, {}, {1: lambda _: []}, 60.0)
    here.close()


def test_last_words_of_a_member_are_told():
    here, there = channels_of()
    say_goodbye({0: there}, "worker tcp://b (replica 1) failed at step 3: no rows")
    with pytest.raises(GangError, match=r"failed at step 3: no rows"):
        exchange({1: here}, TAG, {}, {1: lambda _: []}, 60.0)
    here.close()


@pytest.mark.parametrize(
    ("tag", "size", "problem"),
    [(Tag(4, 5, ""), 0, "when step 3"), (TAG, 4, "sent 4 bytes at step 3.*but 8 were due")],
)
def test_frame_that_is_not_due_is_an_error(tag, size, problem):
    here, there = channels_of()
    exchange({0: there}, tag, {0: [memoryview(bytes(size))]}, {}, 1.0)
    with pytest.raises(GangError, match=problem):
        exchange({1: here}, TAG, {}, {1: lambda _: [memoryview(bytearray(8))]}, 1.0)
    here.close()
    there.close()
