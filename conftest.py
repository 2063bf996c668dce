"""Which files are tests: of 1,700, most hold neither tests nor examples, and need no import."""

import importlib.util

import pytest

import dpexec
from dpexec.engine.ir import callsite, opdef
from dpexec.engine.kernels import implementations
from dpexec.incubate.fleet.base.fleet_base import Fleet

_NUMBA = importlib.util.find_spec("numba") is not None


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Modules are searched for doctests if there is one in their text, and they can be imported."""
    found = yield
    return [
        collector
        for collector in found
        if type(collector) is pytest.Module or _has_examples(file_path.read_bytes())
    ]


def _has_examples(text):
    return b">>>" in text and (_NUMBA or b"\nfrom numba " not in text)


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


@pytest.fixture(autouse=True)
def _declared_by_examples(request, monkeypatch):
    """Operators and kernels that an example declares are gone when it ends: tests list them."""
    if request.node.name.startswith(("dpexec.engine.ir.opdef.", "dpexec.engine.kernels.lowering.")):
        if "lowering" in request.node.name:
            pytest.importorskip("numba")
        monkeypatch.setattr(opdef, "_registry", {**opdef.registered()})
        monkeypatch.setattr(implementations, "_table", {**implementations._table})


@pytest.fixture(autouse=True)
def _fleet_of_examples(request, monkeypatch):
    """An example has a ``fleet`` of its own."""
    if request.node.name.startswith("dpexec.incubate.fleet."):
        module = importlib.import_module(request.node.dtest.globs["__name__"])
        if isinstance(known := getattr(module, "fleet", None), Fleet):
            monkeypatch.setattr(module, "fleet", type(known)())
