"""Clusters for tests that leave them as they were, and what threads do without any."""

import pytest

from tests.distributed.clusters import workers
from tests.distributed.nets import NETS
from tests.runtime.nets import train


@pytest.fixture(scope="package")
def pair():
    """The client of two worker processes."""
    with workers(2) as found:
        yield found.client


@pytest.fixture(scope="package")
def three():
    """The client of three worker processes."""
    with workers(3) as found:
        yield found.client


@pytest.fixture(params=[2, 3])
def client(request):
    """The clients of two and of three worker processes."""
    return request.getfixturevalue({2: "pair", 3: "three"}[request.param])


@pytest.fixture(scope="package")
def expected():
    """What threads do with a net, once per number of devices."""
    known = {}

    def find(name, devices):
        if (name, devices) not in known:
            known[name, devices] = train(*NETS[name](), devices)
        return known[name, devices]

    return find
