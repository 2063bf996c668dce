"""Messages between members: large ones lie in memory of the host, and stay as they are."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.group import Group
from dpexec.engine.exchange.messages import Message, decode, encode
from dpexec.engine.exchange.rendezvous import Member
from dpexec.engine.exchange.shared import hand_over
from dpexec.engine.exchange.wire import GangError, Tag

MEMBERS = [Member(f"worker {rank}", (rank,), "host", "", None) for rank in range(2)]


@pytest.fixture(params=["unix", "tcp"])
def pair(request):
    """Two members of a gang, connected as on one host or as on two."""
    if request.param == "unix":
        ends = socket.socketpair()
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            ends = socket.create_connection(server.getsockname()), server.accept()[0]
    channels = [{1 - rank: Channel(end, f"member {1 - rank}")} for rank, end in enumerate(ends)]
    groups = [Group(MEMBERS, rank, found, 5.0) for rank, found in enumerate(channels)]
    with ThreadPoolExecutor(2) as threads:
        yield groups, threads
    for group in groups:
        group.close()


def talk(pair, step, *values):
    """What each member gets of the other."""
    groups, threads = pair
    tag = Tag(step, 0, "a test")

    def both(rank):
        data = groups[rank].talk(
            tag, {1 - rank: encode(Message(values={"x": values[rank]}))}, [1 - rank]
        )
        return decode(data[1 - rank], "the other").values["x"]

    return list(threads.map(both, range(2)))


def numbers(step, rank, size=5000):
    return np.arange(size, dtype="float32") + 100 * step + rank


def test_messages_stay_as_they_are_while_others_come(pair):
    kept = [talk(pair, step, numbers(step, 0), numbers(step, 1)) for step in range(40)]
    for step, (first, second) in enumerate(kept):  # more than there are rooms
        np.testing.assert_array_equal(first, numbers(step, 1))
        np.testing.assert_array_equal(second, numbers(step, 0))


def test_rooms_are_used_again_and_small_messages_take_none(pair):
    (group, _), _ = pair
    opened = None
    for step in range(19):
        size = 10 if step % 3 else 4000
        found = talk(pair, step, numbers(step, 0, size), numbers(step, 1, size))
        np.testing.assert_array_equal(found[0], numbers(step, 1, size))
        np.testing.assert_array_equal(found[1], numbers(step, 0, size))
        opened = opened or len(os.listdir("/proc/self/fd"))
        assert (group.moved[0]["shared"] > 0) == (size > 10 and group.channels[1].is_local)
        del found
    assert opened == len(os.listdir("/proc/self/fd"))


def test_a_member_that_goes_is_noticed(pair):
    (group, other), _ = pair
    other.close()
    large = encode(Message(values={"x": numbers(0, 0)}))
    with pytest.raises(GangError, match="member 1"):
        group.talk(Tag(0, 0, "a test"), {1: large}, [1])


def test_a_descriptor_waits_for_a_member_that_has_not_read_what_came_before():
    ours, theirs = socket.socketpair()
    channel, tag = Channel(ours, "member 1"), Tag(0, 0, "a test")
    sent = 0
    while count := channel.send([b"x" * 4096]):
        sent += count
    with theirs, ThreadPoolExecutor(1) as threads, open(os.devnull, "rb") as file:
        with pytest.raises(GangError, match=r"member 1 did not answer for 0\.01 s"):
            hand_over(channel, file.fileno(), tag, 0.01)
        handing = threads.submit(hand_over, channel, file.fileno(), tag, 5.0)
        assert theirs.recv(sent, socket.MSG_WAITALL) == b"x" * sent
        token, found, _, _ = socket.recv_fds(theirs, 100, 1)
        handing.result()
        assert token == b"memory"
        os.close(*found)
    channel.close()
