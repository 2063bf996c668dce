"""How trainers find each other at endpoints, and refuse processes of other runs."""

import contextlib
import functools
import stat
import threading

import pytest

from dpexec.engine.core.errors import EnforceNotMet
from dpexec.engine.exchange.endpoints import SECRET, Endpoint, connect, parse_endpoints, secret_of
from dpexec.engine.exchange.reception import Reception, knock
from dpexec.engine.exchange.wire import GangError
from tests.engine.run.trainers.pair import free_endpoint

HERE = [Endpoint("127.0.0.1", 6170), Endpoint("::1", 6171)]
ELSEWHERE = Endpoint("10.0.0.7", 6170)


@contextlib.contextmanager
def server(endpoint, secret):
    """Lets one visitor in; gives the list that will hold its rank."""
    came = []

    def serve():
        while not came and reception.is_open:
            for rank, sock in reception.admit(range(2).__contains__, 0.1):
                came.append(rank)
                sock.close()

    reception = Reception(secret)
    reception.listen(endpoint, str(endpoint))
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield came
    finally:
        reception.close()
        thread.join()


def visit(endpoint, secret, rank, limit):
    comes = functools.partial(connect, endpoint, None, "worker")
    return knock(comes, secret, rank, limit, f"server at {endpoint}")


def test_endpoints_are_read_and_written_alike():
    text = "10.0.0.7:6170,[::1]:6171"
    assert ",".join(map(str, parse_endpoints(text))) == text


@pytest.mark.parametrize("text", ["10.0.0.7", "10.0.0.7:port", ":6170", "a:1,a:1"])
def test_what_is_no_list_of_endpoints_is_shown(text):
    with pytest.raises(EnforceNotMet, match=text):
        parse_endpoints(text)


def test_secret_of_the_environment_is_for_all_endpoints(monkeypatch):
    monkeypatch.setenv(SECRET, "beans")
    assert secret_of([*HERE, ELSEWHERE]) == b"beans"


def test_without_a_secret_others_must_not_reach_an_endpoint(monkeypatch):
    monkeypatch.delenv(SECRET, raising=False)
    with pytest.raises(EnforceNotMet, match=rf"{ELSEWHERE} .* {SECRET}"):
        secret_of([*HERE, ELSEWHERE])


def test_processes_of_a_user_share_a_secret_that_only_the_user_reads(monkeypatch, tmp_path):
    monkeypatch.delenv(SECRET, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = secret_of(HERE)
    assert len(first) == 64
    assert secret_of(HERE) == first
    (file,) = (tmp_path / "dpexec").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    with pytest.raises(EnforceNotMet, match="must belong to this user alone"):
        secret_of(HERE)


def test_visitor_is_known_by_its_rank():
    endpoint = free_endpoint()
    with server(endpoint, b"beans") as came:
        visit(endpoint, b"beans", 1, 5.0).close()
    assert came == [1]


def test_strangers_are_not_let_in():
    endpoint = free_endpoint()
    with server(endpoint, b"beans") as came, pytest.raises(GangError, match=f"{endpoint}.*secret"):
        visit(endpoint, b"peas", 1, 0.3)
    assert came == []


def test_who_does_not_listen_is_named():
    endpoint = free_endpoint()
    with pytest.raises(GangError, match=rf"server at {endpoint} did not let us in within 0.2 s"):
        visit(endpoint, b"beans", 0, 0.2)


def test_an_endpoint_in_use_is_named():
    endpoint = free_endpoint()
    with contextlib.closing(Reception(b"beans")) as first:
        first.listen(endpoint, str(endpoint))
        second = Reception(b"beans")
        with pytest.raises(GangError, match=f"cannot listen at {endpoint}"):
            second.listen(endpoint, str(endpoint))
        assert not second.is_open
