"""Which files are tests: of 1,700, most hold neither tests nor examples, and need no import."""

import pytest

import dpexec
from dpexec.engine.ir import callsite


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Modules are searched for doctests if there is one in their text."""
    found = yield
    return [
        collector
        for collector in found
        if type(collector) is pytest.Module or b">>>" in file_path.read_bytes()
    ]


@pytest.fixture(scope="session")
def small_data_sets(tmp_path_factory):
    """A folder with a small file in place of each of Paddle's data sets."""
    from tests.paddle.miniatures import write_all

    home = tmp_path_factory.mktemp("data-sets")
    write_all(home)
    return home


@pytest.fixture(autouse=True)
def _data_of_examples(request, monkeypatch):
    """The examples of ``paddle.dataset`` read small files: nothing is downloaded."""
    if request.node.name.startswith("dpexec.paddle.dataset."):
        home = request.getfixturevalue("small_data_sets")
        monkeypatch.setattr(dpexec.paddle.dataset.common, "DATA_HOME", str(home))


@pytest.fixture(autouse=True)
def _own_name_scopes(monkeypatch):
    """Name scopes are counted for a whole process: each test, and each example, counts its own."""
    monkeypatch.setattr(callsite, "_name_scopes", [callsite._NameScope("/")])
