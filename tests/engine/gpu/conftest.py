"""GPUs that do not exist."""

import pytest

from tests.fakes.cupy import install


@pytest.fixture(autouse=True)
def _sums_are_numpys(monkeypatch):
    """Here bits are compared: kernels that add up in an order of their own are left out."""
    monkeypatch.setattr("dpexec.engine.kernels.gpu._FIND", ())


@pytest.fixture
def cupy(monkeypatch):
    """Two of them, without NCCL."""
    return install(monkeypatch, 2)
