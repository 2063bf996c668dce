"""What no test may leave to others."""

import pytest

from dpexec.dashboard.hub import HUB
from dpexec.trace import live, profile


@pytest.fixture(autouse=True, scope="module")
def nobody_watches():
    """Watchers and profilers that other modules left behind do not see the steps of this one."""
    HUB._joined.clear()
    profile.stop()
    for watcher in live.watchers():
        live.remove(watcher)
