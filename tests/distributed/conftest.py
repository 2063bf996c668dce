"""Clusters shared by tests, and reference results of threads."""

import pytest

from tests.distributed.clusters import workers
from tests.distributed.nets import NETS
from tests.engine.run.nets import train


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


@pytest.fixture(scope="package")
def _two_mortals():
    with workers(2) as found:
        yield found


@pytest.fixture(scope="package")
def _three_mortals():
    with workers(3) as found:
        yield found


def _complete(found, count):
    found.wait_for(count)
    yield found
    found.wake()


@pytest.fixture
def mortals(_two_mortals):
    """Two workers that a test may kill or stop; the next one finds others in their place."""
    yield from _complete(_two_mortals, 2)


@pytest.fixture
def three_mortals(_three_mortals):
    """Three of these."""
    yield from _complete(_three_mortals, 3)


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
