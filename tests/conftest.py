"""What no test may leave to others."""

import pytest

from dpexec.trace import live, profile


@pytest.fixture(autouse=True, scope="module")
def nobody_watches():
    """Watchers and profilers that a module leaves behind do not see the steps of others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "_watchers", ())
        patch.setattr(profile, "_active", None)
        yield
