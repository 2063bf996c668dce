"""Threads of those who come to a server end with them."""

import socket
import time

import pytest

from dpexec.runtime.pservers import visitors
from dpexec.runtime.pservers.visitors import Visitors
from tests.waiting import until


def read_all(visitor):
    """Take what a visitor says until it is gone."""
    visitor.known = visitor.sock.recv(1) == b"k"
    visitor.sock.settimeout(None)
    while visitor.sock.recv(100):
        pass
    visitor.sock.close()


@pytest.fixture
def pair():
    """Both ends of a connection."""
    mine, other = socket.socketpair()
    other.settimeout(30)
    yield mine, other
    mine.close()
    other.close()


def test_who_has_gone_is_forgotten(pair):
    present = Visitors(read_all, None)
    present.let_in(pair[0])
    present.tidy()
    (visitor,) = present._present
    pair[1].close()
    until(lambda: not visitor.thread.is_alive())
    present.tidy()
    assert not present._present


def test_strangers_who_do_not_say_who_they_are_are_sent_away(monkeypatch, pair):
    monkeypatch.setattr(visitors, "_PATIENCE", 0.3)
    present = Visitors(read_all, None)
    present.let_in(pair[0])
    (visitor,) = present._present
    pair[1].sendall(b"a")
    until(lambda: present.tidy() or not visitor.thread.is_alive())
    assert pair[1].recv(1) == b""


def test_at_the_end_those_who_are_known_have_some_time(monkeypatch, pair):
    present = Visitors(read_all, None)
    present.let_in(pair[0])
    (visitor,) = present._present
    pair[1].sendall(b"k")
    until(lambda: visitor.known)
    begin = time.monotonic()
    present.end(0.2)
    assert time.monotonic() - begin >= 0.2
    assert not visitor.thread.is_alive()
