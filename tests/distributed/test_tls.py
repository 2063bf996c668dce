"""On a cluster with TLS all connections of dpexec are encrypted."""

import gc
import logging

import pytest

from dpexec.engine.exchange import rendezvous
from dpexec.engine.exchange.channels import Channel
from tests.certificates import security_in
from tests.distributed.clusters import workers
from tests.distributed.nets import NETS
from tests.engine.run.nets import assert_same_bits, train


def meet_over_tcp() -> None:
    """Let a worker take all others for other hosts."""
    rendezvous.host_id = lambda: ""


def sockets_of_gangs() -> set[str]:
    """What the members of gangs in this process talk through."""
    gc.collect()  # programs of earlier tests, whose connections lie in cycles
    channels = [found for found in gc.get_objects() if isinstance(found, Channel)]
    return {type(channel.sock).__name__ for channel in channels}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    security = security_in(tmp_path_factory.mktemp("tls"))
    with workers(2, security=security, protocol="tls://") as found:
        found.client.run(meet_over_tcp)
        yield found.client


@pytest.mark.parametrize("collectives", ["tasks", "gang"])
def test_same_bits(client, expected, collectives, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "dpexec")
    monkeypatch.setattr(rendezvous, "host_id", lambda: "")  # the client is on another host, too
    run = train(*NETS["mlp"](), 2, scheduler=client, collectives=collectives)
    assert all(address.startswith("tls://") for address in client.nthreads())
    assert_same_bits(run, expected("mlp", 2))
    found = set().union(*client.run(sockets_of_gangs).values())
    assert found == ({"SSLSocket"} if collectives == "gang" else set())
    assert sockets_of_gangs() == found
    assert not caplog.messages
