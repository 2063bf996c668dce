"""Direct connections to gang members: whole messages, errors, and reasons for a loss."""

import errno
import gc
import os
import socket
import struct
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from distributed.security import Security

from dpexec.engine.exchange import rendezvous
from dpexec.engine.exchange.channels import LENT, Channel
from dpexec.engine.exchange.lines import Line, wait
from dpexec.engine.exchange.messages import joined, parted
from dpexec.engine.exchange.rendezvous import CLIENT, Visitor
from dpexec.engine.exchange.shared import new_memory
from dpexec.engine.exchange.wire import GangError, Sending, Tag, say_goodbye
from tests.certificates import security_in
from tests.engine.exchange.test_wire import SECRET, doors_of


def ends(limit=5.0):
    here, there = socket.socketpair()
    return Line(Channel(here, "worker tcp://b"), limit), Line(Channel(there, "the client"), limit)


@pytest.fixture
def pair():
    found = ends()
    yield found
    for line in found:
        line.close()


def test_parts_arrive_as_they_were_and_arrays_lie_aligned(pair):
    here, there = pair
    parts = [memoryview(bytes(range(n % 256))) for n in (3, 0, 64, 65, 200)]
    parts += [memoryview(np.arange(n, dtype="f8")).cast("B") for n in (1, 17)] * 40
    here.tell(list(joined(parts)), 1.0)
    found = parted(there.take(1.0))
    assert [bytes(part) for part in found] == [bytes(part) for part in parts]
    places = [np.frombuffer(part, "u1").ctypes.data for part in found if len(part)]
    assert all(place % 64 == 0 for place in places)
    assert there.take(0.01) is None


def carried(one, other):
    """What comes to one end of a line, while this thread moves both."""
    while True:
        for line in (one, other):
            line.move()
        if other.messages:
            return other.messages.popleft()
        wait([one, other], 1.0)


def test_large_messages_cross_each_other(pair):
    data = memoryview(np.full(5_000_000, 7, "u1"))
    for line in pair:
        line.post([memoryview(b"head"), data])
    for one, other in (pair, pair[::-1]):
        found = np.frombuffer(carried(one, other), "u1")
        assert bytes(found[:4]) == b"head" and (found[4:] == 7).all()


def test_what_was_said_before_the_end_is_heard(pair):
    here, there = pair
    there.tell([memoryview(b"last words")], 1.0)
    there.close()
    assert bytes(here.take(1.0)) == b"last words"
    with pytest.raises(GangError, match="worker tcp://b is gone"):
        here.take(1.0)


def test_who_leaves_says_why_even_to_those_who_only_send():
    here, there = socket.socketpair()
    line = Line(Channel(here, "trainer 1"), 5.0)
    say_goodbye({0: Channel(there, "server")}, "trainer 1 has failed: no rows")
    with pytest.raises(GangError, match="trainer 1 has failed: no rows"):
        line.tell([memoryview(bytes(100))], 5.0)
    line.close()


def test_who_takes_nothing_is_named(pair):
    here, _ = pair
    with pytest.raises(GangError, match=r"worker tcp://b did not answer for 0\.1 s at .*message 0"):
        here.tell([memoryview(bytes(10_000_000))], 0.1)


def test_who_waits_is_woken_when_the_line_is_interrupted(pair):
    here, _ = pair
    threading.Timer(0.1, here.interrupt).start()
    began = time.monotonic()
    with pytest.raises(GangError, match="is gone"):
        here.take(30.0)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" * 2, b"dpxG" + bytes(28)])
def test_what_is_no_message_is_refused(data):
    here, there = socket.socketpair()
    line = Line(Channel(here, "worker tcp://b"), 5.0)
    there.sendall(data)
    with pytest.raises(GangError, match=r"worker tcp://b sent .* when .*message 0 was due"):
        line.take(5.0)
    line.close()
    there.close()


@pytest.fixture(params=["unix", "tcp", "tls"])
def security(request, monkeypatch, tmp_path):
    """How client and members meet."""
    if request.param != "unix":
        monkeypatch.setattr(rendezvous, "host_id", lambda: "")
    found = security_in(tmp_path) if request.param == "tls" else Security()
    return ("tls" if request.param == "tls" else "tcp"), found


def test_client_comes_in_behind_the_last_member(security):
    scheme, settings = security
    doors, members = doors_of([SECRET] * 2, scheme=scheme, security=settings)
    found = [None, None]

    def join(rank):
        found[rank] = doors[rank].meet([*members, CLIENT], rank, 10.0)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    visitor = Visitor(settings, SECRET)
    assert visitor.why_not(members, 5.0) == ""  # before anybody answers
    for thread in threads:
        thread.start()
    mine = [Line(channel, 8.0) for channel in visitor.visit(members, 10.0, lambda: None)]
    for thread in threads:
        thread.join()
    theirs = [Line(channels.pop(2), 8.0) for channels in found]
    for rank, (line, end) in enumerate(zip(mine, theirs, strict=True)):
        line.tell([memoryview(b"order %d" % rank)], 5.0)
        assert bytes(end.take(5.0)) == b"order %d" % rank
        end.post([memoryview(bytes(3_000_000))])
        assert len(carried(end, line)) == 3_000_000
        sock = line._channel.sock
        if sock.family != socket.AF_UNIX:  # a host that is gone is noticed
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 8000
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    for line in (*mine, *theirs):
        line.close()
    for channels in found:
        for channel in channels.values():
            channel.close()


def test_client_without_the_secret_is_refused(monkeypatch):
    doors, members = doors_of([SECRET])
    joined = []

    def join():
        try:
            joined.append(doors[0].meet([*members, CLIENT], 0, 1.0))
        except GangError as error:
            joined.append(error)

    thread = threading.Thread(target=join)
    thread.start()
    with pytest.raises(GangError, match=r"\(replica 0\) did not let us in within 0.5 s"):
        Visitor(Security(), b"x" * 32).visit(members, 0.5, lambda: None)
    thread.join()
    assert "the client of this run did not come within 1 s" in str(joined[0])


def test_client_is_told_whom_it_does_not_reach():
    doors, members = doors_of([SECRET])
    doors[0].close()
    why_not = Visitor(Security(), SECRET).why_not(members, 1.0)
    assert why_not.startswith("worker tcp://127.0.0.1:1 (replica 0): ")


# ---- messages in memory that both ends see


@pytest.fixture
def lending():
    here, there = socket.socketpair()
    found = [
        Line(Channel(here, "worker tcp://b"), 5.0, lends=True),
        Line(Channel(there, "the client"), 5.0, lends=True),
    ]
    yield found
    for line in found:
        line.close()


def sent(line, value, size=100_000):
    line.tell([memoryview(np.full(size, value, "u1"))], 5.0)


def mapped_rooms():
    return Path("/proc/self/maps").read_text().count("dpexec-messages")


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_lent_messages_arrive_aligned_between_those_that_are_not(lending):
    here, there = lending
    sizes = [3, 5000, 0, 100_000, 64, 1_000_000, 70_000_000]
    for n, size in enumerate(sizes):
        data = [memoryview(np.full(size, n, "u1"))]
        here.post(joined(data))
        (found,) = parted(carried(here, there))
        array = np.frombuffer(found, "u1")
        assert len(array) == size and (array == n).all()
        assert not size or array.ctypes.data % 64 == 0
    assert there.most > 70_000_000  # that came through the socket, the others of its size did not


def test_lent_arrays_may_be_kept_and_their_memory_is_used_again(lending):
    here, there = lending
    before = mapped_rooms(), descriptors()
    kept = []
    for n in range(40):
        sent(here, n)
        array = np.frombuffer(there.take(5.0), "u1")
        if n % 10 == 0:
            kept.append(array)
    assert [int(array[0]) for array in kept] == [0, 10, 20, 30]
    assert all((array == array[0]).all() for array in kept)
    # those that are kept, and two in turn; Python keeps the descriptor of what it maps
    assert mapped_rooms() - before[0] <= 2 * 6 and descriptors() - before[1] <= 2 * 6
    assert there.most == 0


def test_messages_go_through_the_socket_while_all_memory_is_used(lending):
    here, there = lending
    kept = []
    for n in range(30):
        here.post([memoryview(np.full(8000, n, "u1"))])
        kept.append(np.frombuffer(carried(here, there), "u1"))
    assert [int(array.max()) for array in kept] == list(range(30))
    assert there.most == 8000
    kept.clear()
    here.post([memoryview(np.full(100_000, 7, "u1"))])  # more than the rooms hold
    assert (np.frombuffer(carried(here, there), "u1") == 7).all() and there.most == 8000


def test_lent_memory_is_gone_with_the_line_and_its_messages(lending):
    gc.collect()  # what earlier tests left must not go meanwhile
    here, there = lending
    before = mapped_rooms(), descriptors()
    sent(here, 5)
    here.post([memoryview(bytes(500_000))])  # never taken
    here.flush()
    array = np.frombuffer(there.take(5.0), "u1")
    for line in lending:
        line.close()
    del here, there, line
    lending.clear()
    gc.collect()
    assert (array == 5).all()
    del array
    gc.collect()
    assert mapped_rooms() == before[0] and descriptors() <= before[1]


def test_memory_that_was_not_shared_is_refused(lending):
    here, there = lending
    channel = here._channel
    place = struct.pack("<QQQQQ", 3, 1 << 16, 0, 1, 100)
    Sending(Tag(0, 0, "message 0"), [memoryview(place)], LENT).move(channel)
    with pytest.raises(GangError, match="in memory that it has not shared"):
        there.take(5.0)


def test_memory_that_a_process_does_not_get_is_named_and_leaves_nothing(monkeypatch):
    made = []

    def full(descriptor, *_):
        made.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"4096 bytes of memory .*No space.* free memory") as caught:
        new_memory("test", 4096)
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(*made)
