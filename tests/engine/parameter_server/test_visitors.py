"""A server's thread for a connection ends when the connection does."""

import socket
import threading
import time

import pytest

from dpexec.engine.exchange.channels import Channel
from dpexec.engine.parameter_server.visitors import Visitors
from tests.waiting import started_since, until


def read_all(number, channel):
    """Take what a visitor says until it is gone."""
    channel.sock.settimeout(None)
    while channel.sock.recv(100):
        pass


@pytest.fixture
def pair():
    """Both ends of a connection."""
    mine, other = socket.socketpair()
    other.settimeout(30)
    yield Channel(mine, "trainer 0"), other
    mine.close()
    other.close()


def test_who_has_gone_leaves_no_thread(pair):
    before = threading.enumerate()
    present = Visitors(read_all)
    present.let_in(0, pair[0])
    pair[1].close()
    until(lambda: not started_since(before))
    assert pair[0].sock.fileno() == -1
    present.end(0.0)


def test_at_the_end_those_who_are_there_have_some_time(pair):
    before = threading.enumerate()
    present = Visitors(read_all)
    present.let_in(0, pair[0])
    begin = time.monotonic()
    present.end(0.2)
    assert time.monotonic() - begin >= 0.2
    assert not started_since(before)
