"""Where trainers of a test meet."""

import pytest

from dpexec.engine.exchange.party import part_all
from tests.engine.run.trainers.pair import free_endpoint


@pytest.fixture
def endpoints(monkeypatch):
    """Endpoints of two trainers, which part at the end of the test."""
    monkeypatch.setenv("DPEXEC_SECRET", "of this test")
    yield [free_endpoint() for _ in range(2)]
    part_all()
