"""GPUs that do not exist."""

import pytest

from tests.fakes.cupy import install


@pytest.fixture
def cupy(monkeypatch):
    """Two of them, without NCCL."""
    return install(monkeypatch, 2)
