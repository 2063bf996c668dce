"""Members can join while strangers connect, and connections of strangers are cleaned up."""

import contextlib
import functools
import itertools
import os
import resource
import secrets
import socket
import threading
import time

import pytest

from dpexec.engine.exchange import reception
from dpexec.engine.exchange.channels import DATA, HEADER, Channel
from dpexec.engine.exchange.endpoints import Endpoint, connect
from dpexec.engine.exchange.messages import Room
from dpexec.engine.exchange.reception import Reception, knock
from dpexec.engine.exchange.wire import _MAGIC, GangError, Tag, exchange
from tests.certificates import security_in
from tests.engine.run.strangers import DEEDS, connected, crowd
from tests.waiting import started_since, until

SECRET = b"beans"
TAG = Tag(0, 0, "a test")


@pytest.fixture(scope="module")
def security(tmp_path_factory):
    return security_in(tmp_path_factory.mktemp("tls"))


class Hall:
    """A reception on a thread: who has come in, by rank."""

    def __init__(self, kind, security):
        self.came = {}
        self.family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        where = f"dpexec-{secrets.token_hex(8)}" if kind == "unix" else Endpoint("127.0.0.1", 0)
        self._security = security
        self.reception = Reception(SECRET)
        self._where = self.reception.listen(where, "the hall", security)
        self.address = f"\0{where}" if kind == "unix" else tuple(self._where)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while self.reception.is_open:
            self.came.update(self.reception.admit(lambda rank: rank not in self.came, 0.05))

    def knock(self, rank, limit=20.0, secret=SECRET):
        comes = functools.partial(connect, self._where, self._security, "worker")
        return knock(comes, secret, rank, limit, "the hall")

    def close(self):
        self.reception.close()
        self._thread.join()
        for sock in self.came.values():
            sock.close()


@pytest.fixture(params=["tcp", "tls", "unix"])
def hall(request):
    security = request.getfixturevalue("security") if request.param == "tls" else None
    with contextlib.closing(Hall(request.param, security)) as found:
        yield found


@pytest.mark.parametrize("deed", DEEDS)
def test_members_come_in_whatever_strangers_do(hall, deed):
    before = threading.enumerate()
    with contextlib.ExitStack() as stack:
        for rank in range(3):
            for _ in range(10):
                stranger = stack.enter_context(connected(hall.family, hall.address))
                with contextlib.suppress(ConnectionError):
                    DEEDS[deed](stranger)
            stack.enter_context(contextlib.closing(hall.knock(rank, limit=5.0)))
        until(lambda: hall.came.keys() == {0, 1, 2})
        assert not started_since(before)


def test_strangers_are_counted_by_what_they_did(hall, monkeypatch):
    def is_refused():  # on a busy machine, 0.5 s may be over before anybody has said a word
        with pytest.raises(GangError, match=r"did not let us in within 0\.5 s") as refused:
            hall.knock(1, 0.5, b"peas")
        return "same secret" in str(refused.value)

    until(is_refused)
    monkeypatch.setattr(reception, "_PATIENCE", 0.2)
    silent, rude, short = (connected(hall.family, hall.address) for _ in range(3))
    rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
    short.close()
    told = until(lambda: "for 0.2 s" in hall.reception.sent_away and hall.reception.sent_away)
    assert "did not know the secret" in told
    assert "connections came and went" in told
    silent.close()
    rude.close()


def test_slow_strangers_have_so_much_time_for_all_they_say(hall, monkeypatch):
    """A byte now and then is not enough to stay."""
    monkeypatch.setattr(reception, "_PATIENCE", 0.3)
    with connected(hall.family, hall.address) as slow:
        slow.settimeout(10)
        slow.sendall(b"\x16")
        until(lambda: _is_sent_away(slow), 10)


def _is_sent_away(sock):
    """Whether a byte more is too much."""
    try:
        sock.sendall(b"\x16")
    except ConnectionError:
        return True
    return False


def test_who_waits_for_a_stopped_host_may_give_up_soon(monkeypatch):
    """Its system takes the connection, though none of its processes says a word."""
    monkeypatch.setattr(reception, "_ATTEMPT", 20.0)
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        comes = functools.partial(connect, Endpoint(*stopped.getsockname()), None, "worker")
        began = time.monotonic()

        def still_wanted():
            if time.monotonic() > began + 0.3:
                raise GangError("given up")

        with pytest.raises(GangError, match="given up"):
            knock(comes, SECRET, 1, 50.0, "the hall", still_wanted)
    assert time.monotonic() < began + 15  # before the attempt is over


def test_nobody_comes_twice(hall):
    first = hall.knock(1)
    with pytest.raises(GangError, match="did not let us in"):
        hall.knock(1, 0.3)
    assert "came twice" in hall.reception.sent_away
    first.close()


@contextlib.contextmanager
def descriptors(more):
    """Let this process have just so many descriptors more than it has.

    The limit is on their numbers, and tests that ran before leave gaps between those in use.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = set(map(int, os.listdir("/proc/self/fd")))
    free = (number for number in itertools.count() if number not in used)
    limit = next(itertools.islice(free, more, None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("kind", ["tcp", "tls", "unix"])
def test_a_crowd_takes_no_descriptors_from_the_rest(kind, request):
    security = request.getfixturevalue("security") if kind == "tls" else None
    before = threading.enumerate()
    with (
        descriptors(40),
        contextlib.closing(Hall(kind, security)) as hall,
        crowd(hall.family, hall.address, 1500),
    ):
        until(lambda: "made room for others" in hall.reception.sent_away)
        assert len(started_since(before)) < 10
        hall.knock(1).close()
        until(lambda: hall.came.keys() == {1})


def test_without_descriptors_strangers_make_room():
    """However few are left: here the cap on strangers alone does not help."""
    with contextlib.closing(Hall("tcp", None)) as hall:
        hall.reception._most = 10_000
        with descriptors(40), crowd(hall.family, hall.address, 300):
            until(lambda: "Too many open files" in hall.reception.sent_away)
            hall.reception._most = 10  # so that this thread has some, too
            hall.knock(1).close()


def test_frames_larger_than_memory_are_refused():
    here, there = socket.socketpair()
    there.sendall(HEADER.pack(_MAGIC, DATA, TAG.step, TAG.number, (1 << 64) - 1))
    channel = Channel(here, "trainer 1")
    with pytest.raises(GangError, match=r"trainer 1 announces \d+ bytes"):
        exchange({1: channel}, TAG, {}, {1: Room("trainer 1")}, 1.0)
    for sock in (here, there):
        sock.close()
