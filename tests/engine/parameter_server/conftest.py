"""Nobody waits for long in these tests."""

import pytest


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch):
    monkeypatch.setenv("FLAGS_rpc_deadline", "8000")
