"""Boxes for small messages: order beside the socket, sleepers, ends that are gone."""

import random
import socket
import threading
import time

import pytest

from dpexec.engine import kernels
from dpexec.engine.exchange import lines
from dpexec.engine.exchange.channels import Channel
from dpexec.engine.exchange.lines import Line
from dpexec.engine.exchange.wire import GangError

pytestmark = pytest.mark.skipif(not kernels.available(), reason="boxes need numba")

LIMIT = 20.0


@pytest.fixture
def ends():
    """Two ends that know each other's boxes."""
    here, there = socket.socketpair()
    found = [
        Line(Channel(here, "worker tcp://b"), LIMIT, lends=True),
        Line(Channel(there, "the client"), LIMIT, lends=True),
    ]
    for line in found:
        line.flush()
    for line in found:
        line.move()
    yield found
    for line in found:
        line.close()


def through_sockets(monkeypatch):
    """What is sent through the sockets from now on."""
    sent, send = [], Channel.send

    def noted(channel, buffers, descriptor=None):
        sent.append(b"".join(buffers))
        return send(channel, buffers, descriptor)

    monkeypatch.setattr(Channel, "send", noted)
    return sent


def test_messages_come_without_the_socket_while_the_other_end_is_awake(ends, monkeypatch):
    here, there = ends
    sent = through_sockets(monkeypatch)
    for n in range(5):
        here.tell([b"order %d" % n], LIMIT)
        assert bytes(there.take(LIMIT)) == b"order %d" % n
        there.tell([bytes(100_000)], LIMIT)  # lies in shared memory; a room's first use is told
        assert len(here.take(LIMIT)) == 100_000
    assert len(sent) <= 2


def test_messages_come_in_order_whatever_way_they_go(ends):
    here, there = ends
    draw = random.Random(3)
    sizes = [draw.choice((0, 1, 50, 3000, 3968, 4000, 5000, 200_000)) for _ in range(3000)]

    def post():
        for n, size in enumerate(sizes):
            here.post([b"%8d" % n, bytes(size)])
            if draw.random() < 0.3:
                here.tell([b""], LIMIT)
            elif draw.random() < 0.02:
                time.sleep(0.002)
        here.tell([b"the end"], LIMIT)

    thread = threading.Thread(target=post)
    thread.start()
    found = []
    while (message := there.take(LIMIT)) is not None and bytes(message) != b"the end":
        if len(message):
            found.append((int(bytes(message[:8])), len(message) - 8))
            if draw.random() < 0.02:
                time.sleep(0.002)
    thread.join()
    assert found == list(enumerate(sizes))


def test_who_sleeps_is_woken(ends, monkeypatch):
    here, there = ends
    sent = through_sockets(monkeypatch)

    def later():
        time.sleep(0.5)  # longer than anybody spins
        here.tell([b"order"], LIMIT)

    thread = threading.Thread(target=later)
    thread.start()
    began = time.monotonic()
    assert bytes(there.take(LIMIT)) == b"order"
    assert time.monotonic() - began < LIMIT / 2
    thread.join()  # who was about to sleep may find the message before the call goes out
    assert len(sent) == 1


def test_several_lines_are_waited_for_together(ends, monkeypatch):
    here, there = ends
    assert not lines.wait([there], 0.01)
    here.tell([b"order"], LIMIT)
    assert lines.wait([there], LIMIT) == [there]
    there.hear()
    assert bytes(there.messages.popleft()) == b"order" and not lines.wait([there], 0.01)


def test_what_was_put_into_the_box_before_the_end_is_heard(ends):
    here, there = ends
    there.tell([b"last words"], LIMIT)
    there.close()
    assert bytes(here.take(LIMIT)) == b"last words"
    with pytest.raises(GangError, match="worker tcp://b is gone"):
        here.take(LIMIT)


def test_who_has_no_numba_gets_everything_through_the_socket(monkeypatch):
    here, there = socket.socketpair()
    one = Line(Channel(here, "worker tcp://b"), LIMIT, lends=True)
    monkeypatch.setattr(kernels, "available", lambda: False)
    other = Line(Channel(there, "the client"), LIMIT, lends=True)
    for n in range(3):
        one.tell([b"order %d" % n], LIMIT)
        assert bytes(other.take(LIMIT)) == b"order %d" % n
        other.tell([b"outcome"], LIMIT)
        assert bytes(one.take(LIMIT)) == b"outcome"
    assert other.inbox is None
    for line in (one, other):
        line.close()
