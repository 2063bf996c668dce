"""Which files are tests: of 1,700, most hold neither tests nor examples, and need no import."""

import pytest

import dpexec  # noqa: F401 - whole, before pytest imports single modules of it for their examples


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Modules are searched for doctests if there is one in their text."""
    found = yield
    return [
        collector
        for collector in found
        if type(collector) is pytest.Module or b">>>" in file_path.read_bytes()
    ]
